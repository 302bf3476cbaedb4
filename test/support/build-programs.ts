import { pino } from 'pino';
import { temporalPrograms } from '../../deploy/temporal/programs.ts';
import { cliSettings } from './temporal-cli.ts';

/** Builds Temporal's server for the tests on PostgreSQL, so that none of them waits for that within its time-out. */
await temporalPrograms({ cacheDir: cliSettings().cacheDir, env: process.env, log: pino() });
