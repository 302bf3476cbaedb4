import { ConfigError, loadConfig } from '../config.ts';
import { openDataDir } from '../lib/data-dir.ts';
import { StartupError } from '../lib/errors.ts';
import { ProgramRecords } from '../mcp/program-records.ts';
import { loadMcpRegistry, type McpRegistry } from '../mcp/registry.ts';
import { createLogger } from '../telemetry/logger.ts';
import { LOCAL } from '../auth/api-keys.ts';
import { checkServers, type CheckedServer } from '../tools/check-servers.ts';
import { printable } from './turn-report-text.ts';
import { untilInterrupted } from './until-interrupted.ts';

/**
 * Prints what the registered MCP servers offer, each as soon as it has responded.
 * @throws ConfigError if there is no such server, StartupError if a server cannot be used
 */
export async function checkMcpServers(only: string | undefined): Promise<void> {
  const config = loadConfig();
  const registry = await loadMcpRegistry(config.mcpServersFile);
  const names = namesOf(registry, only, config.mcpServersFile !== undefined);
  for (const warning of registry.warnings) process.stderr.write(`${warning}\n`);
  await openDataDir(config.dataDir);
  // The programs' own output is in the reasons for which they fail.
  const log = createLogger({ logLevel: 'silent' });
  const programs = await ProgramRecords.open(config.dataDir, log);
  const checked = await checkServers(names, {
    registry,
    pool: { ...config.mcp, allowPrivateUrls: () => false, programs, log },
    subjectId: LOCAL.subject.subjectId,
    signal: untilInterrupted(),
    onChecked: (server) => process.stdout.write(textOf(server)),
  });
  const failed = checked.filter(({ error }) => error !== null).map(({ name }) => name);
  if (failed.length > 0) throw new StartupError(`these MCP servers cannot be used: ${failed.join(', ')}`);
}

/** @throws ConfigError */
function namesOf({ names, disabled }: McpRegistry, only: string | undefined, hasFile: boolean): string[] {
  if (!hasFile) throw new ConfigError('EVERTURN_MCP_SERVERS is not set: set it to the file that has the MCP servers');
  if (only === undefined || names.includes(only)) return only === undefined ? names : [only];
  if (disabled.includes(only)) throw new ConfigError(`EVERTURN_MCP_SERVERS: ${only} is disabled`);
  throw new ConfigError(
    `EVERTURN_MCP_SERVERS has no server ${JSON.stringify(only)}: it has ${names.join(', ') || 'none'}`,
  );
}

function textOf({ name, error, seconds, transport, protocol, tools, warnings }: CheckedServer): string {
  const time = `${seconds.toFixed(1)} s`;
  if (error !== null) return printable(`${name}: not available (${time}): ${error}`) + '\n';
  const count = (use: string) => tools.filter((tool) => tool.use === use).length;
  const uses = [
    `${count('ask')} ask`,
    `${count('run')} run`,
    ...(count('closed') > 0 ? [`${count('closed')} closed`] : []),
  ];
  const head = `${name}: ${transport}, protocol ${protocol}, connected in ${time}, ${tools.length} tools: ${uses.join(', ')}`;
  const rows = tools.map((tool) => `  ${tool.use.padEnd(6)}  ${tool.annotation.padEnd(12)}  ${tool.name}`);
  const notes = warnings.map((warning) => `  warning: ${warning}`);
  return [head, ...rows, ...notes].map((line) => `${printable(line)}\n`).join('');
}
