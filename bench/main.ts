import { existsSync } from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { startAllInOne } from './all-in-one.ts';
import { startBench, type Bench } from './bench.ts';
import type { Deployment } from './deployment.ts';
import { measureCatalog } from './measurements/catalog.ts';
import { measureChange } from './measurements/change.ts';
import { measureEncryption } from './measurements/encryption.ts';
import { measureFanOuts } from './measurements/fan-out.ts';
import { measureFirstDelta, measureFirstDeltaBehindModel } from './measurements/first-delta.ts';
import { measureKernels } from './measurements/kernels.ts';
import { measureLoop } from './measurements/loop.ts';
import { measureSessions } from './measurements/sessions.ts';
import { measureHistory, measureSteps } from './measurements/steps.ts';
import { measureThroughputs } from './measurements/throughput.ts';
import { measureTurnEvents } from './measurements/turn-events.ts';
import type { Report } from './report.ts';
import { prepare, type Setting } from './setting.ts';
import { startStandalone } from './standalone.ts';

/**
 * Measures the cost of Everturn beside Temporal alone in one run: the same Temporal server, the same machine, and a model
 * and a tool that respond immediately. There are three measurements: one process with the embedded Temporal
 * (`all-in-one`); an API process and a worker on PostgreSQL and Redis (`standalone`); and the cost of encryption beside
 * the same turns without it (`encrypted`). `--deployment` selects some of them, `--json` prints each as one line of JSON.
 * `sessions` instead measures the cost of `--sessions` sessions at rest whose workflows stay, beside those that end, and
 * `catalog` the lists, counts and sweeps of the catalog over many runs beside few: it runs no turn. `kernels` measures the
 * kernels of agents that act in code, and `change` this tree beside the checkout that `--before` names.
 */

const DEPLOYMENTS = {
  'all-in-one': (setting: Setting) => measure(setting, startAllInOne),
  standalone: (setting: Setting) => measure(setting, startStandalone),
  encrypted: measureEncryption,
};

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    json: { type: 'boolean', default: false },
    sessions: { type: 'string', default: '4000' },
    before: { type: 'string', default: '' },
    deployment: { type: 'string', default: Object.keys(DEPLOYMENTS).join() },
  },
});

const measurement = positionals.join(' ');
if (measurement === '') await measureTurns(DEPLOYMENTS, options.deployment.split(','));
else if (measurement === 'catalog') await measureCatalogs();
else if (measurement === 'sessions') {
  await measureTurns({ sessions: (setting) => measureSessions(setting, wholeNumber(options.sessions)) });
} else if (measurement === 'kernels') await measureTurns({ kernels: measureKernels });
else if (measurement === 'change') {
  if (!options.before || !existsSync(path.join(options.before, 'node_modules'))) {
    throw new Error('--before must name a checkout of the project where npm ci was run');
  }
  await measureTurns({ change: (setting) => measureChange(setting, options.before) });
} else throw new Error(`there is no measurement ${measurement}: name none, catalog, change, kernels or sessions`);

async function measureTurns(
  measurements: Record<string, (setting: Setting) => Promise<unknown>>,
  selected = Object.keys(measurements),
): Promise<void> {
  for (const [name, measureIt] of Object.entries(measurements)) {
    if (!selected.includes(name)) continue;
    say(`--- ${name}`);
    const { setting, end } = await prepare(say);
    try {
      print({ [name]: await measureIt(setting) });
    } finally {
      await end();
    }
  }
}

async function measureCatalogs(): Promise<void> {
  for (const kind of ['sqlite', 'postgres'] as const) {
    say(`--- catalog on ${kind}`);
    print({ [`catalog_${kind}`]: await measureCatalog(kind, say) });
  }
}

function print(report: Record<string, unknown>): void {
  process.stdout.write(`${JSON.stringify(report, undefined, options.json ? undefined : 2)}\n`);
}

async function measure(setting: Setting, start: (setting: Setting) => Promise<Deployment>): Promise<Report> {
  const bench = await startBench(setting, start);
  return {
    ...(await measureFirstDelta(bench, 40)),
    ...(await measureFirstDeltaBehindModel(bench, 40)),
    ...(await measureSteps(bench, { steps: 100, rounds: 7 })),
    ...(await measureHistory(bench, [20, 100, 400])),
    loop_ratio_20: await measureLoop(bench, { steps: 20, rounds: 3 }),
    ...(await measureEvents(bench)),
    ...(await measureThroughputs(bench)),
    ...(await measureFanOuts(bench)),
  };
}

async function measureEvents({ setting, client, temporal }: Bench): ReturnType<typeof measureTurnEvents> {
  setting.say('workflow tasks per turn');
  const sessionId = await client.warmSession('plain');
  return measureTurnEvents(temporal, { sessionId, turn: () => client.turn(sessionId), turns: 5 });
}

function wholeNumber(text: string): number {
  if (/^[1-9]\d*$/.test(text)) return Number(text);
  throw new Error(`--sessions must be a whole number: ${text}`);
}

function say(line: string): void {
  if (!options.json) process.stderr.write(`${line}\n`);
}
