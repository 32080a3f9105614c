// Live progress of a run. Without this script the pages work by reloading.
(() => {
  "use strict";
  const state = document.querySelector("[data-events]");
  if (state) {
    const part = (name) => state.querySelector(`[data-${name}]`);
    const bar = state.querySelector("progress");
    const source = new EventSource(state.dataset.events);
    let said = -1;
    const show = (event) => {
      const progress = JSON.parse(event.data);
      part("status").textContent = progress.status;
      part("count").textContent = `${progress.done} of ${progress.planned} units`;
      part("last").textContent = progress.last;
      bar.max = Math.max(1, progress.planned);
      bar.value = progress.done;
      const tenth = Math.floor((10 * progress.done) / bar.max);
      if (tenth !== said) {
        said = tenth;
        part("said").textContent = `${progress.done} of ${progress.planned} units ended`;
      }
    };
    source.addEventListener("progress", show);
    source.addEventListener("end", (event) => {
      show(event);
      source.close();
      location.reload();
    });
  }
  if (document.querySelector("[data-again]")) setTimeout(() => location.reload(), 700);
})();
