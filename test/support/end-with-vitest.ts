/**
 * Ends this worker of vitest when vitest itself has ended, by Ctrl-C or a signal. Node leaves a child running when its
 * channel to the parent closes, and vitest's workers do not react to it before they have something to report.
 */
function endWithVitest(): void {
  process.kill(process.pid, 'SIGKILL');
}

// This module is loaded for each test file, also in a worker that has run others.
const isPrepared = process.listeners('disconnect').some(({ name }) => name === endWithVitest.name);
if (!isPrepared) process.once('disconnect', endWithVitest);
