// Sets the colours before anything is painted. data-dark stands on the root while the page is dark.
(() => {
  "use strict";
  const system = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => { try { return localStorage.getItem("enginebook-theme"); } catch { return null; } };
  const state = { choice: stored() || "auto" };
  const apply = () => {
    const dark = state.choice === "dark" || (state.choice === "auto" && system.matches);
    document.documentElement.toggleAttribute("data-dark", dark);
  };
  state.set = (choice) => {
    state.choice = choice;
    try { localStorage.setItem("enginebook-theme", choice); } catch { /* a file may have no storage */ }
    apply();
  };
  system.addEventListener("change", apply);
  document.documentElement.setAttribute("data-script", "");
  apply();
  window.enginebookTheme = state;
})();
