/**
 * A graph of steps, laid out in layers from top to bottom: each step below all that it waits for.
 *
 * An edge that passes layers is led through each of them, so that it crosses no step. In a layer the
 * order is that of the neighbours' middles, and the places are those nearest to them (least squares)
 * that keep the distance.
 */
export interface GraphStep {
  id: string;
  needs: readonly string[];
  /** It is for the failure of these, and in nobody's order. */
  undoes?: readonly string[];
}

export interface GraphNode {
  id: string;
  x: number;
  y: number;
}

export interface GraphEdge {
  from: string;
  to: string;
  /** Whether it is taken on failure. */
  isUndo: boolean;
  /** What it goes through, from the bottom of one step to the top of the other. */
  points: readonly { x: number; y: number; bottom: number }[];
}

export interface Graph {
  nodes: readonly GraphNode[];
  edges: readonly GraphEdge[];
  width: number;
  height: number;
}

export const NODE_WIDTH = 172;
export const NODE_HEIGHT = 58;
const GAP = 18;
const LAYER_GAP = 38;
const PASSING_WIDTH = 10;
const SWEEPS = 6;

interface Place {
  key: string;
  id: string | null;
  layer: number;
  width: number;
  above: Place[];
  below: Place[];
  x: number;
}

export function layOut(steps: readonly GraphStep[]): Graph {
  const known = new Set(steps.map(({ id }) => id));
  const needs = new Map(steps.map((step) => [step.id, step.needs.filter((id) => known.has(id) && id !== step.id)]));
  const sources = new Map(
    steps.map((step) => [step.id, [...withoutDetours(step.id, needs), ...(step.undoes ?? []).filter((id) => known.has(id) && id !== step.id)]]),
  );
  const layerOf = findLayers(steps, sources);
  const layers: Place[][] = [];
  const places = new Map<string, Place>();
  const put = (key: string, id: string | null, layer: number): Place => {
    const place: Place = { key, id, layer, width: id === null ? PASSING_WIDTH : NODE_WIDTH, above: [], below: [], x: 0 };
    (layers[layer] ??= []).push(place);
    return place;
  };
  for (const { id } of steps) places.set(id, put(id, id, layerOf.get(id) ?? 0));
  const routes: { from: string; to: string; isUndo: boolean; places: Place[] }[] = [];
  for (const step of steps) {
    for (const source of new Set(sources.get(step.id))) {
      const from = places.get(source) as Place;
      const to = places.get(step.id) as Place;
      const passed = [from];
      for (let layer = from.layer + 1; layer < to.layer; layer++) passed.push(put(`${source}>${step.id}@${layer}`, null, layer));
      passed.push(to);
      for (const [index, place] of passed.slice(1).entries()) {
        passed[index]?.below.push(place);
        place.above.push(passed[index] as Place);
      }
      routes.push({ from: source, to: step.id, isUndo: step.undoes?.includes(source) ?? false, places: passed });
    }
  }
  arrange(layers);
  const all = layers.flat();
  const left = Math.min(...all.map(({ x, width }) => x - width / 2), 0);
  const right = Math.max(...all.map(({ x, width }) => x + width / 2), 0);
  const topOf = (layer: number): number => layer * (NODE_HEIGHT + LAYER_GAP);
  return {
    nodes: steps.map(({ id }) => {
      const { x, layer } = places.get(id) as Place;
      return { id, x: Math.round(x - left - NODE_WIDTH / 2), y: topOf(layer) };
    }),
    edges: routes.map(({ from, to, isUndo, places: passed }) => ({
      from,
      to,
      isUndo,
      points: passed.map(({ x, layer }) => ({ x: Math.round(x - left), y: topOf(layer), bottom: topOf(layer) + NODE_HEIGHT })),
    })),
    width: Math.ceil(right - left),
    height: Math.max(layers.length * (NODE_HEIGHT + LAYER_GAP) - LAYER_GAP, 0),
  };
}

/** What a step waits for, but for what those wait for anyway: a line for each would hide the order. */
function withoutDetours(id: string, needs: ReadonlyMap<string, readonly string[]>): string[] {
  const own = needs.get(id) ?? [];
  const above = new Set<string>();
  const waiting = own.flatMap((each) => needs.get(each) ?? []);
  for (let each = waiting.pop(); each !== undefined; each = waiting.pop()) {
    if (above.has(each)) continue;
    above.add(each);
    waiting.push(...(needs.get(each) ?? []));
  }
  return own.filter((each) => !above.has(each));
}

/** The longest way down to each step. What waits for itself, which no server sends, is cut somewhere. */
function findLayers(steps: readonly GraphStep[], sources: ReadonlyMap<string, readonly string[]>): Map<string, number> {
  const found = new Map<string, number>(steps.map(({ id }) => [id, 0]));
  for (let round = 0; round < steps.length; round++) {
    let isSettled = true;
    for (const { id } of steps) {
      const layer = Math.max(0, ...(sources.get(id) ?? []).map((source) => (found.get(source) ?? 0) + 1));
      if (layer === found.get(id) || layer >= steps.length) continue;
      found.set(id, layer);
      isSettled = false;
    }
    if (isSettled) break;
  }
  return found;
}

function arrange(layers: Place[][]): void {
  for (const layer of layers) pack(layer, layer.map(() => 0));
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const isDown = sweep % 2 === 0;
    const order = isDown ? layers : [...layers].reverse();
    for (const layer of order) {
      const wanted = new Map(layer.map((place) => [place, middleOf(isDown ? place.above : place.below) ?? place.x]));
      if (sweep < SWEEPS - 2) layer.sort((one, other) => (wanted.get(one) as number) - (wanted.get(other) as number));
      pack(layer, layer.map((place) => wanted.get(place) as number));
    }
  }
}

const middleOf = (places: readonly Place[]): number | null =>
  places.length === 0 ? null : places.reduce((sum, { x }) => sum + x, 0) / places.length;

/** Puts a layer's places as near to where they want to be as their order and distance allow. */
function pack(layer: readonly Place[], wanted: readonly number[]): void {
  const offsets: number[] = [];
  let offset = 0;
  for (const [index, place] of layer.entries()) {
    const before = layer[index - 1];
    if (before !== undefined) offset += (before.width + place.width) / 2 + GAP;
    offsets.push(offset);
  }
  // Without the offsets they only may not overtake each other: neighbours that would are one block.
  const blocks: { sum: number; count: number }[] = [];
  for (const [index, each] of wanted.entries()) {
    blocks.push({ sum: each - (offsets[index] ?? 0), count: 1 });
    for (let last = blocks.at(-1), before = blocks.at(-2); last && before && before.sum / before.count > last.sum / last.count; last = blocks.at(-1), before = blocks.at(-2)) {
      blocks.pop();
      before.sum += last.sum;
      before.count += last.count;
    }
  }
  let index = 0;
  for (const { sum, count } of blocks) {
    for (let n = 0; n < count; n++, index++) (layer[index] as Place).x = sum / count + (offsets[index] ?? 0);
  }
}

/** An edge as a line to be drawn: straight through layers, bent between them. */
export function pathOf({ points }: GraphEdge): string {
  const said: string[] = [];
  for (const [index, to] of points.entries()) {
    const from = points[index - 1];
    if (from === undefined) {
      said.push(`M${to.x} ${to.bottom}`);
      continue;
    }
    const middle = (from.bottom + to.y) / 2;
    said.push(from.x === to.x ? `V${to.y}` : `C${from.x} ${middle} ${to.x} ${middle} ${to.x} ${to.y}`);
    if (index < points.length - 1) said.push(`V${to.bottom}`);
  }
  return said.join("");
}
