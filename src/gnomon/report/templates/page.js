// Turns the still charts of the page into interactive ones. Without this script the stills remain.
(() => {
  "use strict";
  const options = {
    ast: true, // no eval: the page's policy forbids it
    actions: false,
    renderer: "svg",
    defaultStyle: false,
    tooltip: { disableDefaultStyle: true },
    logLevel: 1, // errors only
  };
  const NARROWEST = 150; // pixels a panel keeps, however small the screen
  const ROUNDS = 3;

  // The specification for the page, whose heading shows the title and whose card is the background.
  function prepared(specification, available) {
    const { title, ...spec } = structuredClone(specification);
    spec.padding = 0;
    spec.background = "transparent";
    if (available < 420) {
      const { legend, axisY, ...config } = spec.config ?? {};
      spec.config = { ...config, legend: { ...legend, columns: 1 }, axisY: { ...axisY, labelLimit: 100 } };
    }
    return spec;
  }

  // Gives the panels the spare width, or takes what is lacking; says whether anything changed.
  function adjust(spec, spare) {
    if (spec.facet && spare < 0 && spec.columns > 1) {
      spec.columns = 1;
      return true;
    }
    const panels = spec.vconcat ?? [spec.spec ?? spec];
    const resized = panels.map((panel) => {
      if (typeof panel.width !== "number") return false;
      const square = panel.width === panel.height;
      const most = square || spec.facet ? panel.width : Infinity;
      const width = Math.max(NARROWEST, Math.min(most, panel.width + spare));
      if (width === panel.width) return false;
      panel.width = width;
      if (square) panel.height = width;
      return true;
    });
    return resized.includes(true);
  }

  async function drawFitted(specification, available) {
    const canvas = document.createElement("div");
    const spec = prepared(specification, available);
    let drawn;
    for (let round = 0; round < ROUNDS; round += 1) {
      drawn?.finalize();
      drawn = await vegaEmbed(canvas, structuredClone(spec), options);
      const width = Number(canvas.querySelector("svg").getAttribute("width"));
      if (!adjust(spec, Math.floor(available - width))) break;
    }
    return { canvas, drawn };
  }

  async function svgOf(specification) {
    const aside = document.createElement("div");
    const drawn = await vegaEmbed(aside, structuredClone(specification), options);
    const svg = await drawn.view.toSVG();
    drawn.finalize();
    return svg;
  }

  function offer(link, content, type) {
    link.href = URL.createObjectURL(new Blob([content], { type }));
    delete link.dataset.download;
  }

  function prepareDownloads(figure, specification, still) {
    const link = (kind) => figure.querySelector(`a[data-download="${kind}"]`);
    link("png").href = still;
    offer(link("json"), JSON.stringify(specification), "application/json");
    const svg = link("svg");
    svg.addEventListener("click", async (event) => {
      if (!svg.dataset.download) return;
      event.preventDefault();
      offer(svg, await svgOf(specification), "image/svg+xml");
      svg.click();
    });
  }

  async function show(figure) {
    const specification = JSON.parse(figure.querySelector('script[type="application/json"]').textContent);
    const place = figure.querySelector(".chart");
    prepareDownloads(figure, specification, place.querySelector("img").src);
    let drawn;
    let width = 0;
    const draw = async () => {
      width = place.clientWidth;
      const next = await drawFitted(specification, width);
      drawn?.finalize();
      drawn = next.drawn;
      place.replaceChildren(next.canvas);
      if (place.scrollWidth > place.clientWidth) place.tabIndex = 0;
      else place.removeAttribute("tabindex");
    };
    await draw();
    let waiting;
    new ResizeObserver(() => {
      if (Math.abs(place.clientWidth - width) < 2) return;
      clearTimeout(waiting);
      waiting = setTimeout(draw, 150);
    }).observe(place);
  }

  const figures = [...document.querySelectorAll("figure[data-chart]")];
  const ready = Promise.all(figures.map((figure) => show(figure).catch((error) => console.error(error))));
  ready.then(() => { document.documentElement.dataset.charts = "drawn"; });
})();
