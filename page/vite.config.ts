import { defineConfig } from "vitest/config";

// No inlined assets, no inline scripts: the page runs under a content security policy of 'self'.
export default defineConfig({
  base: "./",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../src/perdure/server/static",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  test: { include: ["src/**/*.test.ts"], environment: "node" },
});
