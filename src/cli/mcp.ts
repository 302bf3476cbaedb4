import type { Command } from 'commander';

/** `everturn mcp check`: works on the file of a server's MCP servers, whether or not the server is running. */
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
