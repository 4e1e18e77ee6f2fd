/** The event-stream format, parsed as the HTML standard's section on it says. Pure. */

export interface SseEvent {
  event: string;
  data: string;
  id: string | null;
}

/** Feeds on text as it comes, in pieces of any size; gives each event once its blank line is there. */
export class SseParser {
  private rest = "";
  private data: string[] = [];
  private event = "";
  private id: string | null = null;
  private afterReturn = false;

  push(chunk: string): SseEvent[] {
    const events: SseEvent[] = [];
    // A line feed right after a carriage return ends no line of its own, in the next piece too.
    const isRest = this.afterReturn && chunk.startsWith("\n");
    if (chunk !== "") this.afterReturn = chunk.endsWith("\r");
    if (isRest) chunk = chunk.slice(1);
    const lines = chunk.split(/\r\n|\r|\n/);
    lines[0] = this.rest + (lines[0] ?? "");
    this.rest = lines.pop() ?? "";
    for (const line of lines) this.line(line, events);
    return events;
  }

  private line(line: string, events: SseEvent[]): void {
    if (line === "") {
      if (this.data.length > 0) {
        events.push({ event: this.event || "message", data: this.data.join("\n"), id: this.id });
      }
      this.data = [];
      this.event = "";
      this.id = null;
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    if (field === "data") this.data.push(value);
    else if (field === "event") this.event = value;
    else if (field === "id" && !value.includes("\0")) this.id = value;
  }
}
