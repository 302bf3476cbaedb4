/** What runs until it is told to stop. */
export interface Running {
  /** Rejects if it can't go on; settles when it has stopped. */
  finished: Promise<void>;
  stop: () => Promise<void>;
}

/** Lets it run until a signal asks for its end, then stops it. Rejects if it can't go on. */
export async function untilStopped(running: Running): Promise<void> {
  const signal = new Promise<void>((resolve) => {
    for (const name of ['SIGINT', 'SIGTERM'] as const) {
      process.once(name, () => {
        // Who asks twice does not want to wait; nothing is lost by it.
        process.once(name, () => process.exit(130));
        resolve();
      });
    }
  });
  try {
    await Promise.race([signal, running.finished]);
  } finally {
    await running.stop();
  }
}
