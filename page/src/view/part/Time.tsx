import { showFullTime, showTime, showToTheSecond } from "../../text/format";

/** A time as short as it can be, or to the second; all of it, with its zone, on being pointed at. */
export function Time({ at, isPrecise = false }: { at: string | null | undefined; isPrecise?: boolean }) {
  return (
    <time dateTime={at ?? undefined} title={showFullTime(at)}>
      {isPrecise ? showToTheSecond(at) : showTime(at)}
    </time>
  );
}
