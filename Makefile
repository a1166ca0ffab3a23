# The two commands are `make study` and `make test`; everything else helps with them.
PYTHON ?= python3
PARAMS ?= params/quickstart.yaml
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: study test soak lab check format lock audit sbom coverage mutants clean help

help:            ## list the targets
	@sed -n 's/^\([a-z]*\):[^#]*## /  make \1|/p' Makefile | column -t -s '|'

study: $(READY)  ## set everything up and run PARAMS to its report
	@$(BIN)/enginebook run $(PARAMS)

test: $(READY)   ## run the whole test suite
	@$(BIN)/python -m pytest $(TESTS)

soak: $(READY)   ## break a running study: the tests that take many minutes
	@$(BIN)/python -m pytest -m soak $(TESTS)

lab: $(READY)    ## open JupyterLab on notebooks/
	@$(BIN)/jupyter lab --ip=127.0.0.1 --notebook-dir=notebooks

# no cache: ruff's does not see that a folder came or went, which changes how imports are sorted
check: $(READY)  ## lint, types, import directions, dead code
	@$(BIN)/ruff check --no-cache . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports
	@$(BIN)/python tools/dead_code.py

format: $(READY) ## format the source
	@$(BIN)/ruff check --fix-only -q . ; $(BIN)/ruff format -q .

lock: $(READY)   ## resolve requirements.lock anew from pyproject.toml
	@$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header \
	  --no-emit-index-url --extra notebook --extra dev --extra slurm --extra kubernetes pyproject.toml -o requirements.lock

audit: $(READY)  ## ask advisory services about every lock; says so where none answers
	@$(BIN)/python tools/audit.py requirements.lock params/engines/*.lock

sbom: $(READY)   ## write docs/licences.md and dist/sbom.cdx.json from requirements.lock
	@$(BIN)/python tools/licences.py && $(BIN)/python tools/sbom.py

coverage: $(READY)  ## measure lines and branches of lib/ by TESTS (all when not given)
	@$(BIN)/coverage erase && $(BIN)/coverage run -m pytest $(TESTS); \
	  $(BIN)/coverage combine -q && $(BIN)/coverage report --show-missing

mutants: $(READY)  ## change metrics, stats and physics and see which changes no test notices
	@$(BIN)/python tools/mutants.py

clean:           ## remove the workbook's environment (outputs and engines stay)
	rm -rf $(VENV)

# The stamp is written last: an interrupted set-up is done again.
$(READY): requirements.lock pyproject.toml
	@sh tools/setup.sh "$(PYTHON)" "$(VENV)"
	@touch $@
