"""A storage plugin of Snakemake whose store is a folder: ``shelf://name/key`` in SHELF_FOLDER.

What it is asked goes through the same interface as with S3. With SHELF_BROKEN nothing can be sent.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from snakemake_interface_storage_plugins.io import IOCacheStorageInterface
from snakemake_interface_storage_plugins.storage_object import StorageObjectRead, StorageObjectWrite
from snakemake_interface_storage_plugins.storage_provider import (
    ExampleQuery,
    Operation,
    QueryType,
    StorageProviderBase,
    StorageQueryValidationResult,
)

SCHEME = "shelf://"


class StorageProvider(StorageProviderBase):
    @classmethod
    def example_queries(cls) -> list[ExampleQuery]:
        return [ExampleQuery("shelf://name/key", "an object", QueryType.ANY)]

    def rate_limiter_key(self, query: str, operation: Operation) -> Any:
        return None

    def default_max_requests_per_second(self) -> float:
        return 100.0

    def use_rate_limiter(self) -> bool:
        return False

    @classmethod
    def is_valid_query(cls, query: str) -> StorageQueryValidationResult:
        return StorageQueryValidationResult(query, query.startswith(SCHEME), "no shelf")


class StorageObject(StorageObjectRead, StorageObjectWrite):
    @property
    def place(self) -> Path:
        return Path(os.environ["SHELF_FOLDER"], self.query.removeprefix(SCHEME))

    async def inventory(self, cache: IOCacheStorageInterface) -> None:
        pass

    def get_inventory_parent(self) -> str | None:
        return None

    def local_suffix(self) -> str:
        return str(self.query).removeprefix(SCHEME)

    def cleanup(self) -> None:
        pass

    def exists(self) -> bool:
        return self.place.exists()

    def mtime(self) -> float:
        return self.place.stat().st_mtime

    def size(self) -> int:
        return self.place.stat().st_size

    def retrieve_object(self) -> None:
        shutil.copyfile(self.place, self.local_path())

    def store_object(self) -> None:
        if "SHELF_BROKEN" in os.environ:
            raise OSError("the shelf is broken")
        self.place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.local_path(), self.place)

    def remove(self) -> None:
        self.place.unlink()
