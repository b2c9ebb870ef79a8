#ifndef MONOPOD_SPAWN_PATHS_H
#define MONOPOD_SPAWN_PATHS_H

// paths.c
int open_in(int root, const char *name, int flags);
int open_straight_in(int root, const char *name, int flags); // no links at all
int open_plain(const char *name, int flags); // from the process's root, no magic links on the way
// These make what is missing, also what links lead to.
int make_dir_in(int root, const char *name, unsigned mode);
int make_file_in(int root, const char *name, unsigned mode);
int make_straight_in(int root, const char *name, unsigned mode); // a directory; no links at all
int make_parent_in(int root, const char *name, char **last); // the directory in which a name ends when all links are followed, and that end: the caller's to free
int open_again(int path_fd, int flags); // a descriptor of O_PATH, opened for what it is

#endif
