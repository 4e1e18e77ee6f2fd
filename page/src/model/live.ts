/**
 * Messages in the making: deltas and the partial text of late joiners, by message, part and offset.
 *
 * Text is placed by its offset in code points, so a delta that comes twice adds nothing, and one
 * that comes before its predecessor waits for it.
 */
import type { Delta } from "../net/wire";

export interface LivePart {
  kind: "text" | "reasoning" | "output";
  text: string;
  /** Code points of `text`. */
  length: number;
  waiting: readonly { offset: number; text: string }[];
}

export interface LiveMessage {
  messageId: string;
  turnId: string | null;
  callId: string | null;
  /** By part number; a part of which nothing has come yet is undefined. */
  parts: readonly (LivePart | undefined)[];
}

const EMPTY: LivePart = { kind: "text", text: "", length: 0, waiting: [] };

/** The messages with this delta placed; unchanged if it brings nothing new. */
export function placeDelta(messages: readonly LiveMessage[], delta: Delta): readonly LiveMessage[] {
  const index = messages.findIndex((message) => message.messageId === delta.message_id);
  const old = messages[index];
  const number = delta.part ?? 0;
  const part = old?.parts[number];
  const placed = extend({ ...(part ?? EMPTY), kind: delta.kind ?? part?.kind ?? "text" }, delta);
  if (part !== undefined && placed === null) return messages;
  const parts = [...(old?.parts ?? [])];
  parts[number] = placed ?? { ...EMPTY, kind: delta.kind ?? "text" };
  const message: LiveMessage = {
    messageId: delta.message_id,
    turnId: delta.turn_id ?? old?.turnId ?? null,
    callId: delta.call_id ?? old?.callId ?? null,
    parts,
  };
  return index < 0 ? [...messages, message] : messages.with(index, message);
}

function extend(part: LivePart, delta: Delta): LivePart | null {
  let { text, length } = part;
  let waiting = [...part.waiting, { offset: delta.offset ?? 0, text: delta.text }];
  for (let grown = true; grown; ) {
    grown = false;
    const still: { offset: number; text: string }[] = [];
    for (const piece of waiting) {
      if (piece.offset > length) {
        still.push(piece);
        continue;
      }
      const points = [...piece.text];
      const added = points.slice(length - piece.offset);
      if (added.length > 0) {
        text += added.join("");
        length += added.length;
        grown = true;
      }
    }
    waiting = still;
  }
  if (length === part.length && waiting.length === part.waiting.length) return null;
  return { kind: part.kind, text, length, waiting };
}
