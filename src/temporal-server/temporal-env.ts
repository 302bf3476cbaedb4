/**
 * The variables that Temporal's program gets: those of any program, and those of Go. The others of this process are not
 * for it, above all API keys, which would be readable in `/proc` for as long as the server runs.
 */
const INHERITED = [
  'HOME',
  'LANG',
  'PATH',
  'TMPDIR',
  'TZ',
  'USER',
  'GODEBUG',
  'GOGC',
  'GOMAXPROCS',
  'GOMEMLIMIT',
  'GOTRACEBACK',
];

/** The environment of Temporal's program. */
export function temporalEnv(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return Object.fromEntries(INHERITED.flatMap((name) => (env[name] === undefined ? [] : [[name, env[name]]])));
}
