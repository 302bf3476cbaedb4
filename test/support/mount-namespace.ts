/** Runs the command after it with mounts of its own, which end with it; without root as one of a user namespace. */
export const IN_MOUNT_NAMESPACE = [
  'unshare',
  ...(process.getuid?.() === 0 ? [] : ['--user', '--map-root-user']),
  '--mount',
  '--propagation=private',
];
