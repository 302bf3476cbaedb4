import { RunningCommand, type CommandEnd, type CommandOptions, type CommandSandbox } from './running-command.ts';

export type { CommandEnd, CommandOptions, CommandSandbox } from './running-command.ts';

/**
 * Runs the commands of one sandbox. Each is bash with what it starts, in a process group of its own, behind the wall that
 * kernels have; other than code in a kernel, it may start programs. What a command leaves behind ends with it.
 */
export class CommandRunner {
  readonly #sandbox: CommandSandbox;
  readonly #running = new Set<RunningCommand>();
  #isStopped = false;

  constructor(sandbox: CommandSandbox) {
    this.#sandbox = sandbox;
  }

  /**
   * Runs a command to its end. A command that fails, or that is ended, has an end like any other.
   *
   * @throws Error if no wall could be put up for it: it has not run then
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
