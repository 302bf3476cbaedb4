import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    projects: [
      {
        test: { name: 'unit', include: ['{src,workflows,activities}/**/*.test.ts'] },
      },
    ],
  },
});
