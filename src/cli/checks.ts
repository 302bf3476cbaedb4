import type { Command } from 'commander';

// Commands that work with the settings of a server, whether or not it is running.

/** `everturn agents check` */
export function addAgentsCommand(program: Command): void {
  program
    .command('agents')
    .description('check agents')
    .command('check')
    .description(
      'ask the models of agents for a few tokens, and their MCP servers for their tools; exit code 1 if one cannot be used',
    )
    .argument(
      '[agent]',
      'the name of a registered agent, or a file *.json with an AgentSpec; default: all registered agents',
    )
    .option('--json', 'print the results as JSON')
    .action(async (agent: string | undefined, options: { json?: boolean }) => {
      const { checkAgents } = await import('./check-agents.ts');
      await checkAgents(agent, options);
    });
}

/** `everturn mcp check` */
export function addMcpCommand(program: Command): void {
  program
    .command('mcp')
    .description('check the MCP servers of EVERTURN_MCP_SERVERS')
    .command('check')
    .description(
      'connect to the servers, and print their tools and which of them ask; exit code 1 if one cannot be used',
    )
    .argument('[name]', 'only this server')
    .action(async (name: string | undefined) => {
      const { checkMcpServers } = await import('./check-mcp-servers.ts');
      await checkMcpServers(name);
    });
}

/** `everturn turn inspect` */
export function addTurnCommand(program: Command): void {
  program
    .command('turn')
    .description('inspect a turn')
    .command('inspect')
    .description("print a turn's log, with its content, and what the turn waits for; requires the server's settings")
    .argument('<id>', 'the id of the turn')
    .option('--json', 'print the whole report as JSON')
    .action(async (turnId: string, options: { json?: boolean }) => {
      const { inspectTurn } = await import('./inspect-turn.ts');
      await inspectTurn(turnId, options);
    });
}
