// Progressive enhancement only: every page reads fully without this file.

// --- Tables that sort by a click on a heading and filter by a word.
function sortKey(text) {
  const plain = text.trim().replace(/[−–](?=[\d.∞i])/g, "-").replace(/[,\s%](?=\d{3}\b)/g, "");
  if (/^[+]?(∞|inf)$/.test(plain)) return Infinity;
  const number = plain.match(/^[^\d\w-]*(-?\d*\.?\d+(?:e[+-]?\d+)?)/i);
  return number ? parseFloat(number[1]) : null;
}

function compareCells(a, b) {
  const [x, y] = [sortKey(a), sortKey(b)];
  if (x !== null && y !== null) return x === y ? 0 : x - y;
  if (x !== null || y !== null) return x === null ? 1 : -1;
  return a.localeCompare(b);
}

function makeSortable(table) {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort-button";
    button.append(...[...heading.childNodes].flatMap(node => node.nodeName === "P" ? [...node.childNodes] : [node]));
    heading.replaceChildren(button);
    button.addEventListener("click", () => {
      const direction = heading.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
      [...heading.parentNode.cells].forEach(cell => cell.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", direction);
      const sign = direction === "ascending" ? 1 : -1;
      const text = row => row.cells[column].textContent.trim();
      body.append(...[...body.rows].sort((a, b) => sign * compareCells(text(a), text(b))));
    });
  });
}

function makeFilterable(table) {
  const rows = [...table.tBodies[0].rows];
  if (rows.length < 8) return;
  const tools = document.createElement("div");
  tools.className = "table-tools d-print-none";
  const label = document.createElement("label");
  const input = Object.assign(document.createElement("input"), { type: "search" });
  const count = document.createElement("span");
  count.setAttribute("role", "status");
  label.append("Filter rows", input);
  tools.append(label, " ", count);
  (table.closest(".pst-scrollable-table-container") || table).before(tools);
  input.addEventListener("input", () => {
    const word = input.value.toLowerCase();
    rows.forEach(row => { row.hidden = !row.textContent.toLowerCase().includes(word); });
    count.textContent = word ? `${rows.filter(row => !row.hidden).length} of ${rows.length} rows` : "";
  });
}

// A caption must stay readable while a wide table scrolls under it on a phone.
function keepCaptionInView(caption) {
  const block = document.createElement("span");
  block.className = "caption-block";
  block.append(...caption.childNodes);
  caption.append(block);
}

// --- Accessibility repairs of the theme's markup.
function repairTheme() {
  document.querySelectorAll(".search-button__button[aria-label], summary[aria-label='Toggle hidden content']")
    .forEach(element => { if (element.textContent.trim()) element.removeAttribute("aria-label"); });
  document.querySelectorAll(".citation-list[role=list], [role=doc-biblioentry]").forEach(element => element.removeAttribute("role"));
  document.querySelectorAll(".sidebar-primary-items__start").forEach(element => {
    element.setAttribute("role", "region");
    element.setAttribute("aria-label", "Book");
  });
}

// Font Awesome swaps <i title> for <svg><title> after load; the button keeps its own label.
function silenceIcon(button) {
  button.querySelectorAll("svg title").forEach(title => {
    title.parentNode.removeAttribute("aria-labelledby");
    title.parentNode.removeAttribute("role");
    title.parentNode.setAttribute("aria-hidden", "true");
    title.remove();
  });
}

document.addEventListener("DOMContentLoaded", () => {
  repairTheme();
  document.querySelectorAll("table.sortable").forEach(table => { makeSortable(table); makeFilterable(table); });
  document.querySelectorAll(".bd-article table > caption").forEach(keepCaptionInView);
  document.querySelectorAll(".theme-switch-button").forEach(button => {
    silenceIcon(button);
    new MutationObserver(() => silenceIcon(button)).observe(button, { childList: true, subtree: true });
  });
});
