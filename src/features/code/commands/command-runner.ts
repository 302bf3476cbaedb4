import { RunningCommand, type CommandEnd, type CommandOptions, type CommandSandbox } from './running-command.ts';

export type { CommandEnd, CommandOptions, CommandSandbox } from './running-command.ts';

/**
 * Runs the commands of one sandbox. Each is a bash with its children, in its own process group, behind the same wall as
 * kernels; unlike code in a kernel, it may start programs. Processes that a command leaves behind end with it.
 */
export class CommandRunner {
  readonly #sandbox: CommandSandbox;
  readonly #running = new Set<RunningCommand>();
  #isStopped = false;

  constructor(sandbox: CommandSandbox) {
    this.#sandbox = sandbox;
  }

  /**
   * Runs a command to its end, which is also returned for a command that fails or is ended.
   *
   * @throws Error if its wall could not be put up: the command has not run then
   */
  async run(options: CommandOptions): Promise<CommandEnd> {
    if (this.#isStopped) throw new Error('the sandbox has ended: no command runs in it any more');
    const command = new RunningCommand(this.#sandbox, options);
    this.#running.add(command);
    try {
      return await command.run();
    } finally {
      this.#running.delete(command);
    }
  }

  /** Ends all commands. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await Promise.all([...this.#running].map((command) => command.stop()));
  }
}
