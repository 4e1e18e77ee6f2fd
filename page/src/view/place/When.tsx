import { now } from "../../state/around";
import { showDayTime, showFullTime, showTime } from "../../text/format";
import { showDistance } from "../../text/span";

/** How far off a time is, and all of it on being pointed at. */
export function Distance({ at }: { at: string }) {
  return (
    <time dateTime={at} title={showFullTime(at)}>
      {showDistance(at, now.value)}
    </time>
  );
}

/** A time that may be of any day. */
export function Moment({ at }: { at: string }) {
  return (
    <time dateTime={at} title={showFullTime(at)}>
      {showTime(at)}
    </time>
  );
}

/** A time to come. */
export function DueTime({ at }: { at: string }) {
  return (
    <time dateTime={at} title={showFullTime(at)}>
      {showDayTime(at)}
    </time>
  );
}
