/** Files that are dropped anywhere in the page: it takes them, so that the browser does not leave it for them. */
import { useEffect, useRef, useState } from "preact/hooks";

const hasFiles = (event: DragEvent): boolean => event.dataTransfer?.types.includes("Files") === true;

/** Calls back with what is dropped; whether files are held over the page now. */
export function useDrops(onFiles: (files: FileList) => void): boolean {
  const [isOver, setOver] = useState(false);
  const now = useRef(onFiles);
  now.current = onFiles;
  useEffect(() => {
    const over = (event: DragEvent): void => {
      if (!hasFiles(event) || document.querySelector("dialog[open]") !== null) return;
      setOver(true);
    };
    const leave = (event: DragEvent): void => {
      // Between two elements of the page there is a next one; out of the window there is none.
      if (event.relatedTarget === null) setOver(false);
    };
    const drop = (event: DragEvent): void => {
      setOver(false);
      const files = event.dataTransfer?.files;
      if (files === undefined || files.length === 0 || document.querySelector("dialog[open]") !== null) return;
      now.current(files);
    };
    addEventListener("dragover", over);
    addEventListener("dragleave", leave);
    addEventListener("drop", drop);
    return () => {
      removeEventListener("dragover", over);
      removeEventListener("dragleave", leave);
      removeEventListener("drop", drop);
    };
  }, []);
  return isOver;
}

/** Where nothing takes a file, dropping one does nothing. */
export function keepPage(): void {
  for (const type of ["dragover", "drop"] as const) {
    addEventListener(type, (event) => {
      if (hasFiles(event)) event.preventDefault();
    });
  }
}
