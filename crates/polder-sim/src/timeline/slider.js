'use strict';
// Draws a line through the diagrams at a time, and shows the hosts then. Times are nanoseconds.
// This script is the same in every page: it reads the moments, and the places of times, from there.
const all = (selector) => [...document.querySelectorAll(selector)];
const [panel, slider, time, hosts] = all('#panel, #slider, #time, #hosts');
const moments = all('details[data-at]').map((details) => ({
  at: Number(details.dataset.at),
  words: details.querySelector('pre').textContent,
}));
const diagrams = all('svg[data-places]').map((svg) => {
  const line = document.createElementNS(svg.namespaceURI, 'line');
  line.setAttribute('class', 'now');
  line.setAttribute('x2', '100%');
  svg.prepend(line);
  return { svg, line, places: JSON.parse(svg.dataset.places) };
});
// The slider stops at each time that a diagram or a moment has.
const times = diagrams.flatMap(({ places }) => places.map(([at]) => at));
const stops = [...new Set([...times, ...moments.map(({ at }) => at)])].sort((a, b) => a - b);
const seconds = (at) => `${(Math.floor(at / 1000) / 1e6).toFixed(6)} s`;

function show(wanted, scrolls) {
  slider.value = stops.findLastIndex((stop) => stop <= wanted);
  const now = stops[slider.value];
  time.textContent = seconds(now);
  slider.setAttribute('aria-valuetext', seconds(now));
  const moment = moments.findLast(({ at }) => at <= now) ?? moments[0];
  hosts.textContent = `The hosts at ${seconds(moment.at)}:\n${moment.words}`;
  const shown = diagrams.filter(({ line, places }) => {
    const place = places.findLast(([at]) => at <= now);
    const isIn = place !== undefined && now <= places[places.length - 1][0];
    line.style.display = isIn ? 'inline' : 'none';
    ['y1', 'y2'].forEach((end) => line.setAttribute(end, isIn ? place[1] : 0));
    return isIn;
  });
  const tops = shown.map(({ line }) => line.getBoundingClientRect().top);
  const isSeen = (top) => top >= 0 && top < panel.getBoundingClientRect().top;
  if (scrolls && tops.length > 0 && !tops.some(isSeen)) scrollBy(0, tops[0] - innerHeight / 3);
}

// A page that is opened with #t=1500000 begins at that time, and else at the failure.
function begin() {
  const asked = /^#t=(\d+)$/.exec(location.hash);
  show(asked ? Number(asked[1]) : diagrams[0].places.at(-1)[0], asked !== null);
}
const link = () => history.replaceState(null, '', `#t=${stops[slider.value]}`);
slider.addEventListener('input', () => show(stops[slider.value], true));
slider.addEventListener('change', link);
diagrams.forEach(({ svg, places }) => svg.addEventListener('click', (event) => {
  const y = event.clientY - svg.getBoundingClientRect().top;
  show((places.findLast((place) => place[1] <= y + 3) ?? places[0])[0], false);
  slider.focus({ preventScroll: true });
  link();
}));
addEventListener('hashchange', begin);
panel.hidden = false;
document.body.classList.add('slides');
slider.max = stops.length - 1;
begin();
