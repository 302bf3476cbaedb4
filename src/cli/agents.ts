import type { Command } from 'commander';

/** `everturn agents check`: works with a server's settings, whether or not the server is running. */
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
