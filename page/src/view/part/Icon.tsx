/** The page's few signs, drawn with one pen; each stands beside words or has a label of its own. */
const PATHS = {
  plus: "M8 3v10M3 8h10",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zM10.6 10.6 14 14",
  more: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  copy: "M5.5 5.5V3.2c0-.4.3-.7.7-.7h6.6c.4 0 .7.3.7.7v6.6c0 .4-.3.7-.7.7h-2.3M3.2 5.5h6.6c.4 0 .7.3.7.7v6.6c0 .4-.3.7-.7.7H3.2a.7.7 0 0 1-.7-.7V6.2c0-.4.3-.7.7-.7z",
  check: "M3 8.5 6.5 12 13 4.5",
  cross: "M4 4l8 8M12 4l-8 8",
  edit: "M10.5 3 13 5.5 5.5 13H3v-2.5zM9 4.5 11.5 7",
  link: "M6.8 9.2a2.6 2.6 0 0 0 3.7 0l2.2-2.2a2.6 2.6 0 0 0-3.7-3.7l-.8.8M9.2 6.8a2.6 2.6 0 0 0-3.7 0L3.3 9A2.6 2.6 0 0 0 7 12.7l.8-.8",
  fork: "M5 5.5v5M5 8h3a3 3 0 0 0 3-2.5M5 5.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3zM11 5.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3zM5 13.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3z",
  again: "M13 8a5 5 0 1 1-1.6-3.7M13 2.5v2.8h-2.8",
  up: "M8 13V3M3.8 7 8 2.8 12.2 7",
  down: "M8 3v10M3.8 9 8 13.2 12.2 9",
  left: "M10 3 5 8l5 5",
  right: "M6 3l5 5-5 5",
  attach: "M12.5 7.5 7.7 12.3a3 3 0 0 1-4.2-4.2l5-5a2 2 0 0 1 2.8 2.8L6.4 10.7a1 1 0 0 1-1.4-1.4L9 5.3",
  file: "M9 2.5H4.2c-.4 0-.7.3-.7.7v9.6c0 .4.3.7.7.7h7.6c.4 0 .7-.3.7-.7V6zM9 2.5V6h3.5",
  download: "M8 2.5v8M4.8 7.5 8 10.7l3.2-3.2M3 13.5h10",
  warning: "M8 2.5 14 13H2zM8 6.5v3M8 11.3h.01",
  branch: "M4 3v10M4 9c4 0 8-1 8-5M9.8 5.8 12 3.5l2.2 2.3",
  stop: "M4.5 4.5h7v7h-7z",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" width={size} height={size} aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
