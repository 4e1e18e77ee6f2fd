import { describe, expect, test } from "vitest";
import { type Action, openSession, reduce, type SessionState } from "./session";
import type { Entry, Look, TranscriptPage } from "../net/wire";

const at = "2026-01-01T00:00:00Z";

function message(seq: number, id: string, parentId: string | null, role: Entry["role"] = "user"): Entry {
  return { seq, id, type: "message", created_at: at, parent_id: parentId, role, parts: [{ type: "text", text: id }] };
}

function fact(seq: number, type: string, fields: Partial<Entry> = {}): Entry {
  return { seq, id: `f${seq}`, type, created_at: at, ...fields };
}

function look(fields: Partial<Look> = {}): Look {
  return { session_id: "s", status: "idle", last_seq: 0, cursor: "0", turn: null, queued: [], ...fields };
}

function page(entries: Entry[], fields: Partial<TranscriptPage> = {}): TranscriptPage {
  return { entries, has_more: false, leaf_id: entries.at(-1)?.id ?? null, ...fields };
}

const entry = (value: Entry): Action => ({ type: "entry", entry: value, cursor: `${value.seq}.x` });
const delta = (messageId: string, offset: number, text: string, turnId = "t"): Action => ({
  type: "delta",
  delta: { session_id: "s", turn_id: turnId, message_id: messageId, part: 0, offset, text },
});
const status = (fields: Partial<Look>): Action => ({ type: "status", look: look(fields) });
const fold = (state: SessionState, ...actions: Action[]): SessionState => actions.reduce(reduce, state);
const ids = (state: SessionState): string[] => state.path.entries.map(({ id }) => id);

const a = message(1, "a", null);
const b = message(2, "b", "a");
const opened = (entries: Entry[], fields: Partial<Look> = {}, pageFields: Partial<TranscriptPage> = {}): SessionState =>
  openSession(look({ last_seq: entries.at(-1)?.seq ?? 0, ...fields }), page(entries, pageFields));

describe("entries", () => {
  test("one that grows from the leaf is added, and the cursor follows", () => {
    const state = fold(opened([a]), entry(b));
    expect(ids(state)).toEqual(["a", "b"]);
    expect([state.seq, state.cursor, state.path.leafId]).toEqual([2, "2.x", "b"]);
  });

  test("one that is streamed again changes nothing", () => {
    const state = fold(opened([a]), entry(b));
    expect(reduce(state, entry(b))).toBe(state);
  });

  test("a page fetched later than the look is not doubled by the stream", () => {
    const late = openSession(look({ last_seq: 0 }), page([a, b]));
    const state = fold(late, entry(a), entry(b), entry(message(3, "c", "b")));
    expect(ids(state)).toEqual(["a", "b", "c"]);
  });

  test("a branch that the page knows of is not undone by what the stream repeats", () => {
    // a(1), then b(2), the leaf moved back to a (3), then c(4): the page shows a, c.
    const c = message(4, "c", "a");
    const late = openSession(look({ last_seq: 1 }), page([a, c]));
    const state = fold(late, entry(b), entry(fact(3, "leaf_moved", { leaf_id: "a" })), entry(c));
    expect(ids(state)).toEqual(["a", "c"]);
    expect([state.isStale, state.seq]).toEqual([false, 4]);
  });

  test("a skipped seq is a gap: nothing after it is taken", () => {
    const state = fold(opened([a]), entry(message(3, "c", "b")));
    expect([state.hasGap, state.seq, ids(state)]).toEqual([true, 1, ["a"]]);
  });

  test("a hidden leaf is grown from without being shown", () => {
    const state = fold(opened([a], { last_seq: 2 }, { leaf_id: "hidden" }), entry(message(3, "c", "hidden")));
    expect(ids(state)).toEqual(["a", "c"]);
    expect(state.isStale).toBe(false);
  });

  test("a leaf that is named before its entry came is shown when it comes", () => {
    const state = fold(opened([a], {}, { leaf_id: "b" }), entry(b), entry(message(3, "c", "b")));
    expect([ids(state), state.isStale]).toEqual([["a", "b", "c"], false]);
  });

  test("facts move the cursor and not the path", () => {
    const state = fold(opened([a]), entry(fact(2, "claimed")), entry(fact(3, "something_new")));
    expect([ids(state), state.seq]).toEqual([["a"], 3]);
  });
});

describe("the leaf", () => {
  test("moved to a shown entry, it ends the path there, and the next entry grows from it", () => {
    const state = fold(
      opened([a, b]),
      entry(fact(3, "leaf_moved", { leaf_id: "a" })),
      entry(message(4, "c", "a")),
    );
    expect(ids(state)).toEqual(["a", "c"]);
  });

  test("moved before the first entry, it leaves nothing", () => {
    const state = fold(opened([a, b]), entry(fact(3, "leaf_moved", { leaf_id: null })));
    expect([ids(state), state.path.leafId]).toEqual([[], null]);
    expect(ids(fold(state, entry(message(4, "c", null))))).toEqual(["c"]);
  });

  test("moved elsewhere, it makes the path stale, and what comes meanwhile is not lost", () => {
    const moved = fold(opened([b], {}, { has_more: true }), entry(fact(3, "leaf_moved", { leaf_id: "z" })));
    expect(moved.isStale).toBe(true);
    const z = message(1, "z", null);
    const state = fold(
      moved,
      { type: "refetching" },
      entry(message(4, "c", "z")),
      { type: "refetched", page: page([z]) },
    );
    expect([ids(state), state.isStale]).toEqual([["z", "c"], false]);
  });

  test("what came meanwhile and is on the fetched page is not doubled", () => {
    const c = message(4, "c", "z");
    const state = fold(
      opened([b], {}, { has_more: true }),
      entry(fact(3, "leaf_moved", { leaf_id: "z" })),
      { type: "refetching" },
      entry(c),
      { type: "refetched", page: page([message(1, "z", null), c]) },
    );
    expect(ids(state)).toEqual(["z", "c"]);
  });
});

describe("older pages", () => {
  test("they are put before the first entry, once", () => {
    const state = opened([b], {}, { has_more: true });
    const older: Action = { type: "older", before: "b", page: page([a]) };
    const grown = reduce(state, older);
    expect([ids(grown), grown.path.hasOlder]).toEqual([["a", "b"], false]);
    expect(reduce(grown, older)).toBe(grown);
  });
});

describe("messages in the making", () => {
  const running = opened([a], { status: "running", turn: { turn_id: "t" } });

  test("the entry takes the place of the text of its id, and late deltas add nothing", () => {
    const live = fold(running, delta("b", 0, "Hel"), delta("b", 3, "lo"));
    expect(live.live[0]?.parts[0]?.text).toBe("Hello");
    const state = fold(live, entry(b));
    expect([state.live, ids(state)]).toEqual([[], ["a", "b"]]);
    expect(reduce(state, delta("b", 5, "!"))).toBe(state);
  });

  test("the end of the turn drops what no entry will replace", () => {
    const state = fold(running, delta("b", 0, "Hel"), entry(fact(2, "turn_ended", { turn_id: "t", reason: "interrupted" })));
    expect([state.live, state.status, state.turn]).toEqual([[], "interrupted", null]);
  });

  test("a status that is ahead of the entries waits for them before it drops anything", () => {
    const ahead = fold(running, delta("b", 0, "Hello"), status({ status: "idle", last_seq: 3 }));
    expect(ahead.live).toHaveLength(1);
    const state = fold(ahead, entry(b), entry(fact(3, "turn_ended", { turn_id: "t", reason: "completed" })));
    expect([state.live, ids(state), state.status]).toEqual([[], ["a", "b"], "idle"]);
  });

  test("a server that died in mid-turn leaves no text behind", () => {
    const state = fold(running, delta("b", 0, "Hel"), status({ status: "interrupted", last_seq: 1, cause: "gone" }));
    expect([state.live, state.status, state.cause]).toEqual([[], "interrupted", "gone"]);
  });
});

describe("status, turn and queue", () => {
  test("facts tell them before the server's status does", () => {
    const state = fold(
      opened([a]),
      entry(fact(2, "turn_started", { turn_id: "t", message_id: "a" })),
      entry(fact(3, "message_queued", { message_id: "q", parts: [{ type: "text", text: "later" }] })),
    );
    expect([state.status, state.turn, state.queued.map((pending) => pending.message_id)]).toEqual([
      "running",
      { turn_id: "t" },
      ["q"],
    ]);
    expect(fold(state, entry(message(4, "q", "a"))).queued).toEqual([]);
    expect(fold(state, entry(fact(4, "message_discarded", { message_id: "q" }))).queued).toEqual([]);
  });

  test("an old status does not undo what newer facts told", () => {
    const state = fold(opened([a]), entry(fact(2, "turn_started", { turn_id: "t" })));
    expect(reduce(state, status({ status: "idle", last_seq: 1 }))).toBe(state);
  });

  test("facts that a status had counted already do not count again", () => {
    const state = fold(
      opened([a]),
      status({ status: "idle", last_seq: 3 }),
      entry(fact(2, "turn_started", { turn_id: "t" })),
      entry(fact(3, "turn_ended", { turn_id: "t", reason: "completed" })),
    );
    expect([state.status, state.turn]).toEqual(["idle", null]);
  });

  test("the end of another turn ends nothing", () => {
    const state = fold(
      opened([a], { status: "running", turn: { turn_id: "t" } }),
      entry(fact(2, "turn_ended", { turn_id: "old", reason: "stopped" })),
    );
    expect([state.status, state.turn]).toEqual(["running", { turn_id: "t" }]);
  });

  test("a deleted session has nothing pending", () => {
    const state = fold(opened([a], { status: "running", turn: { turn_id: "t" } }), status({ status: "deleted" }));
    expect([state.status, state.turn, state.queued]).toEqual(["deleted", null, []]);
  });
});

test("any prefix by page and the rest by stream, with repeats, show the same path", () => {
  const journal: Entry[] = [
    message(1, "u", null),
    fact(2, "turn_started", { turn_id: "t" }),
    message(3, "v", "u", "assistant"),
    message(4, "w", "v", "tool"),
    fact(5, "turn_ended", { turn_id: "t", reason: "failed" }),
    fact(6, "leaf_moved", { leaf_id: "u" }),
    message(7, "x", "u", "assistant"),
    message(8, "y", "x"),
  ];
  const pathAt = (seq: number): Entry[] => {
    const entries = journal.filter((other) => other.seq <= seq);
    let leaf: string | null = null;
    for (const other of entries) {
      if (other.type === "leaf_moved") leaf = other.leaf_id ?? null;
      else if (other.parent_id !== undefined) leaf = other.id;
    }
    const path: Entry[] = [];
    for (let id = leaf; id !== null; ) {
      const found = entries.find((other) => other.id === id) as Entry;
      path.unshift(found);
      id = found.parent_id ?? null;
    }
    return path;
  };
  for (let looked = 0; looked <= 8; looked++) {
    for (let fetched = looked; fetched <= 8; fetched++) {
      let state = openSession(look({ last_seq: looked }), page(pathAt(fetched)));
      for (const other of journal) {
        if (other.seq > looked) state = fold(state, entry(other), entry(other));
      }
      expect([looked, fetched, ids(state), state.hasGap]).toEqual([looked, fetched, ["u", "x", "y"], false]);
    }
  }
});
