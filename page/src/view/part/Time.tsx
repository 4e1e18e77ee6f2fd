import { showFullTime, showTime } from "../../text/format";

/** A time as short as it can be; all of it, with its zone, on being pointed at. */
export function Time({ at }: { at: string | null | undefined }) {
  return (
    <time dateTime={at ?? undefined} title={showFullTime(at)}>
      {showTime(at)}
    </time>
  );
}
