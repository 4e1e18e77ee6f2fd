import { describe, expect, it } from "vitest";
import { type Graph, type GraphStep, layOut, NODE_HEIGHT, NODE_WIDTH, pathOf } from "./graph";

const nodeOf = (graph: Graph, id: string) => graph.nodes.find((node) => node.id === id) ?? { id, x: NaN, y: NaN };

function overlaps({ nodes }: Graph): string[] {
  const found: string[] = [];
  for (const [index, one] of nodes.entries()) {
    for (const other of nodes.slice(index + 1)) {
      if (Math.abs(one.x - other.x) < NODE_WIDTH && Math.abs(one.y - other.y) < NODE_HEIGHT) found.push(`${one.id}/${other.id}`);
    }
  }
  return found;
}

/** Edges that pass behind a step that is not theirs. */
function hidden({ nodes, edges }: Graph): string[] {
  return edges.flatMap(({ from, to, points }) =>
    points.slice(1, -1).flatMap(({ x, y }) =>
      nodes.filter((node) => node.y === y && x >= node.x && x <= node.x + NODE_WIDTH).map(({ id }) => `${from}-${to} behind ${id}`),
    ),
  );
}

const random = (seed: number) => () => {
  seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
  return seed / 2_147_483_648;
};

function anyGraph(count: number, next: () => number): GraphStep[] {
  return Array.from({ length: count }, (_, n) => ({
    id: `s${n}`,
    needs: Array.from({ length: n }, (_, m) => `s${m}`).filter(() => next() < 2 / count),
  }));
}

describe("the layout of a graph", () => {
  it("is a straight column for steps one after the other", () => {
    const graph = layOut([
      { id: "a", needs: [] },
      { id: "b", needs: ["a"] },
      { id: "c", needs: ["b"] },
    ]);
    expect(graph.nodes.map(({ x }) => x)).toEqual([0, 0, 0]);
    expect(graph.width).toBe(NODE_WIDTH);
    expect(pathOf(graph.edges[0] as never)).toMatch(/^M86 58V\d+$/);
  });

  it("puts a step below all that it waits for, and between them", () => {
    const graph = layOut([
      { id: "a", needs: [] },
      { id: "b", needs: ["a"] },
      { id: "c", needs: ["a"] },
      { id: "d", needs: ["b", "c"] },
    ]);
    expect(nodeOf(graph, "b").y).toBe(nodeOf(graph, "c").y);
    expect(nodeOf(graph, "d").y).toBeGreaterThan(nodeOf(graph, "b").y);
    expect(nodeOf(graph, "d").x).toBe(nodeOf(graph, "a").x);
    expect(nodeOf(graph, "a").x * 2).toBe(nodeOf(graph, "b").x + nodeOf(graph, "c").x);
  });

  it("leads a long edge past the steps between", () => {
    const graph = layOut([
      { id: "a", needs: [] },
      { id: "b", needs: ["a"] },
      { id: "c", needs: ["b"] },
      { id: "d", needs: [] },
      { id: "e", needs: ["c", "d"] },
    ]);
    const long = graph.edges.find(({ from, to }) => from === "d" && to === "e");
    expect(long?.points).toHaveLength(4);
    expect(hidden(graph)).toEqual([]);
  });

  it("draws no line for what is waited for anyway", () => {
    const graph = layOut([
      { id: "a", needs: [] },
      { id: "b", needs: ["a"] },
      { id: "c", needs: ["b"] },
      { id: "d", needs: ["a", "b", "c"] },
    ]);
    expect(graph.edges.map(({ from, to }) => `${from}-${to}`)).toEqual(["a-b", "b-c", "c-d"]);
  });

  it("puts a step that undoes below those that it is for", () => {
    const graph = layOut([
      { id: "publish", needs: [] },
      { id: "withdraw", needs: [], undoes: ["publish"] },
    ]);
    expect(graph.edges).toMatchObject([{ from: "publish", to: "withdraw", isUndo: true }]);
    expect(nodeOf(graph, "withdraw").y).toBeGreaterThan(nodeOf(graph, "publish").y);
  });

  it("lays out any graph: nothing overlaps, every edge goes down, and none is hidden", () => {
    for (let seed = 1; seed <= 200; seed++) {
      const next = random(seed);
      const steps = anyGraph(2 + Math.floor(next() * 24), next);
      const graph = layOut(steps);
      expect(overlaps(graph)).toEqual([]);
      expect(hidden(graph)).toEqual([]);
      const drawn = new Set(graph.edges.map(({ to }) => to));
      for (const { id, needs } of steps) expect(drawn.has(id)).toBe(needs.length > 0);
      for (const { from, to } of graph.edges) expect(nodeOf(graph, to).y).toBeGreaterThan(nodeOf(graph, from).y);
      for (const { x, y } of graph.nodes) {
        expect(x).toBeGreaterThanOrEqual(0);
        expect(x + NODE_WIDTH).toBeLessThanOrEqual(graph.width + 1);
        expect(y + NODE_HEIGHT).toBeLessThanOrEqual(graph.height);
      }
    }
  });

  it("does two hundred steps at once, and bears what no server sends", () => {
    const wide = layOut(Array.from({ length: 200 }, (_, n) => ({ id: `s${n}`, needs: n % 2 ? [`s${n - 1}`] : [] })));
    expect(overlaps(wide)).toEqual([]);
    const round = layOut([
      { id: "a", needs: ["b", "nobody"] },
      { id: "b", needs: ["a", "b"] },
    ]);
    expect(round.nodes).toHaveLength(2);
    expect(layOut([])).toEqual({ nodes: [], edges: [], width: 0, height: 0 });
  });
});
