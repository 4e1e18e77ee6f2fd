/**
 * Characters that a person could not see, or that would move what they see: shown, never obeyed.
 *
 * Control characters (ANSI escapes among them) become their pictures. Overrides of the direction of
 * text become a mark with their name; isolates, which cannot reach out of where they are, do so only
 * in code, where they have no business. Letters of right-to-left scripts are left alone.
 */
const CONTROLS = /[\u0000-\u0008\u000B\u000C\u000E-\u001F\u007F-\u009F]/g;
const OVERRIDES = /[\u202A-\u202E]/g;
const DIRECTIONS = /[\u202A-\u202E\u2066-\u2069]/g;

const nameOf = (character: string): string =>
  `⟦U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}⟧`;

function pictureOf(character: string): string {
  const code = character.charCodeAt(0);
  if (code === 0x7f) return "\u2421";
  return code < 0x20 ? String.fromCharCode(0x2400 + code) : nameOf(character);
}

/** Prose: what people write to each other. */
export function visibleText(text: string): string {
  return text.replace(CONTROLS, pictureOf).replace(OVERRIDES, nameOf);
}

/** Code, input and output of tools: nothing in it turns the reading direction. */
export function visibleCode(text: string): string {
  return text.replace(CONTROLS, pictureOf).replace(DIRECTIONS, nameOf);
}
