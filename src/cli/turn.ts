import type { Command } from 'commander';

/** `everturn turn inspect`: reads a server's stores, whether or not the server is running. */
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
