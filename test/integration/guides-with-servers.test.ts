import { test } from 'vitest';
import { checkOnOwnServer, prepareReaders, withOwnServer } from '../support/guides/check-page.ts';

prepareReaders();

// The README is in guides.test.ts. Most of their time they wait for starts and for words of the demo model.
test.concurrent.each(withOwnServer().filter((page) => page !== 'README.md'))(
  '%s: each block does what it prints, on the server that the page starts',
  checkOnOwnServer,
  300_000,
);
