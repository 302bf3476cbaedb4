/**
 * Ends this worker of vitest when vitest itself has ended, by Ctrl-C or a signal. Node leaves a child running when its
 * channel to the parent closes, and vitest's workers do not react to it before they have something to report.
 */
process.once('disconnect', () => process.kill(process.pid, 'SIGKILL'));
