import { defineConfig, type OxlintOverride } from 'oxlint';

/**
 * The folders from top to bottom: a file imports only from its own folder or from those below it. `src/main.ts`,
 * `src/config.ts`, `src/setting-values.ts` and `src/api/app.ts` compose what they need; tests and benchmarks import everything.
 */
const LAYERS = [
  'src/cli',
  'src/server',
  'src/demo',
  'src/api/runs',
  'src/api/sessions',
  'src/api/agents-v2',
  'src/api/operations',
  'src/api/http',
  'activities',
  'src/housekeeping',
  'src/features',
  'src/agents',
  'src/tools',
  'src/live',
  'src/engine',
  'workflows',
  'src/mcp',
  'src/models',
  'src/telemetry',
  'src/auth',
  'src/temporal-server',
  'src/temporal',
  'src/catalog',
  'src/blobs',
  'src/encryption',
  'src/spec',
  'src/core',
  'src/lib',
];

/** The features, and the other features that each imports. One that is not listed imports none. */
const FEATURES: Record<string, string[]> = {
  'agent-sessions': [],
  budgets: [],
  code: ['files', 'skills'],
  compaction: [],
  delegation: ['agent-sessions'],
  files: [],
  inbox: [],
  'run-support': [],
  schedules: [],
  'session-stream': [],
  'sign-in': ['inbox'],
  skills: [],
  speculation: ['budgets', 'files'],
  webhooks: [],
};

interface RestrictedPattern {
  group: string[];
  message: string;
  allowTypeImports?: boolean;
}

/** The imports that the `index`-th folder must not have: the folders above it. */
function above(index: number): RestrictedPattern[] {
  return LAYERS.slice(0, index).map((folder) => ({
    group: [`**/${folder.slice(folder.lastIndexOf('/') + 1)}/**`],
    message: 'This folder is above the importing one: see LAYERS in oxlint.config.ts.',
    // Workflows import the types of activities; their code does not enter the sandbox.
    allowTypeImports: LAYERS[index] === 'workflows' && folder === 'activities',
  }));
}

/** The imports that no file of a folder may have. */
function restricted(index: number): RestrictedPattern[] {
  return [NO_SDK_INTERNALS, ...above(index), ...(RESTRICTED[LAYERS[index] ?? ''] ?? [])];
}

function rule(patterns: RestrictedPattern[]): NonNullable<OxlintOverride['rules']> {
  return { 'no-restricted-imports': ['error', { patterns }] };
}

/** A feature imports no other but those that FEATURES names. */
function featureRules([name, others]: [string, string[]]): OxlintOverride[] {
  const closed = Object.keys(FEATURES).filter((other) => ![name, ...others].includes(other));
  // Its files, and those in its folders.
  return ['..', '../..'].map((features, depth) => {
    const composed = {
      group: [`${features}/*.ts`, `!${features}/feature.ts`],
      message: 'The files of src/features compose all of its folders.',
    };
    const otherFeatures: RestrictedPattern = {
      group: closed.map((other) => `${features}/${other}/**`),
      message: 'FEATURES in oxlint.config.ts lists the features that a feature imports.',
    };
    const patterns = [...restricted(LAYERS.indexOf('src/features')), otherFeatures, composed];
    return { files: [`src/features/${name}/${'*/'.repeat(depth)}*.ts`], rules: rule(patterns) };
  });
}

/** The wire shapes of a face are internal to it; the folders below cannot import them anyway. */
const NO_WIRE: RestrictedPattern[] = [
  { group: ['**/sessions/wire/**'], message: 'Only src/api/sessions imports its wire shapes.' },
  { group: ['**/agents-v2/wire/**'], message: 'Only src/api/agents-v2 imports its wire shapes.' },
  { group: ['**/runs/wire/**'], message: 'Only src/api/runs imports its wire shapes.' },
];

const WAIT_FOR =
  'use eventually() of test/support: the second that this waits by default is too short for a busy machine';

/** A release of Temporal's SDK may change what is not public. */
const NO_SDK_INTERNALS: RestrictedPattern = {
  group: ['@temporalio/*/lib/**'],
  message: "What is used of the SDK's internals stands in src/temporal/sdk-internals.ts, with a test.",
};

/** Property tests have one configuration. */
const FAST_CHECK: RestrictedPattern = {
  group: ['fast-check'],
  message: 'Import test/support/fast-check.ts, with which lists and texts become as long as their maxLength.',
};

/** The files that import the SDK's internals. */
const SDK_INTERNALS = ['src/temporal/sdk-{internals,worker-internals}.ts', 'test/support/sdk-internals.ts'];

/** @param outside the paths that leave src/core */
function pureBelow(outside: string): RestrictedPattern {
  return {
    group: [outside, 'node:*', 'express', '@temporalio/*'],
    message: 'src/core is pure, because workflows import it.',
  };
}

/** Further imports that a folder must not have. */
const RESTRICTED: Record<string, RestrictedPattern[]> = {
  'src/cli': NO_WIRE,
  'src/server': NO_WIRE,
  'src/demo': NO_WIRE,
  'src/api/sessions': [{ group: ['**/agents-v2/**', '**/runs/**'], message: 'A face does not know the others.' }],
  'src/api/agents-v2': [{ group: ['**/runs/**'], message: 'A face does not know the others.' }],
  'src/core': [pureBelow('../**')],
  'src/lib': [
    { group: ['@temporalio/*', '../config.ts', '../setting-values.ts'], message: 'src/lib knows nothing of Everturn.' },
  ],
  workflows: [
    {
      group: ['node:*', '../src/**', '!../src/core/**', '@temporalio/{client,worker,activity}'],
      message: 'Workflow code is deterministic: it imports @temporalio/workflow, src/core and other workflow files.',
    },
  ],
};

export default defineConfig({
  plugins: ['typescript', 'unicorn', 'import', 'promise', 'vitest'],
  categories: { correctness: 'error', suspicious: 'error', perf: 'error' },
  rules: {
    'typescript/no-explicit-any': 'error',
    'typescript/no-floating-promises': 'error',
    'typescript/no-misused-promises': 'error',
    'typescript/switch-exhaustiveness-check': ['error', { considerDefaultExhaustiveForUnions: true }],
    'typescript/consistent-type-imports': 'error',
    'import/no-default-export': 'error',
    'import/no-cycle': 'error',
    'no-await-in-loop': 'off',
    'no-shadow': 'off',
    'no-underscore-dangle': 'off',
    'unicorn/consistent-function-scoping': 'off',
    'unicorn/no-array-sort': 'off',
    'unicorn/no-array-reverse': 'off',
    'unicorn/no-useless-undefined': 'off',
    'import/no-unassigned-import': 'off',
    'typescript/consistent-return': 'off',
    'no-restricted-imports': ['error', { patterns: [NO_SDK_INTERNALS] }],
    'import/no-named-as-default-member': 'off',
    'import/no-named-as-default': 'off',
    'promise/always-return': 'off',
  },
  overrides: [
    { files: ['*.config.ts'], rules: { 'import/no-default-export': 'off' } },
    ...LAYERS.map((folder, index): OxlintOverride => ({
      files: [`${folder}/**/*.ts`],
      rules: rule(restricted(index)),
    })),
    { files: ['src/core/records/*.ts'], rules: rule([pureBelow('../../**')]) },
    ...Object.entries({ '*': [], ...FEATURES }).flatMap(featureRules),
    {
      files: ['**/*.test.ts', 'test/**', 'bench/**'],
      rules: {
        'no-restricted-imports': ['error', { patterns: [NO_SDK_INTERNALS, FAST_CHECK] }],
        'vitest/no-conditional-tests': 'off',
        'vitest/require-mock-type-parameters': 'off',
        'vitest/no-conditional-expect': 'off',
        'vitest/expect-expect': 'off',
        'vitest/no-standalone-expect': 'off',
        'typescript/no-unsafe-type-assertion': 'off',
        'typescript/no-meaningless-void-operator': 'off',
        'vitest/valid-expect': ['error', { maxArgs: 2 }],
        'vitest/no-restricted-vi-methods': ['error', { waitFor: WAIT_FOR }],
      },
    },
    { files: ['test/support/eventually.ts'], rules: { 'vitest/no-restricted-vi-methods': 'off' } },
    { files: ['test/support/fast-check.ts', ...SDK_INTERNALS], rules: { 'no-restricted-imports': 'off' } },
  ],
});
