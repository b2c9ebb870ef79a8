//go:build cgo

// The process that only is there. See placeholder.go. It branches off before Go's runtime starts.

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define NAME "monopod:placeholder" // argv[0]

__attribute__((constructor)) static void take_over(int argc, char **argv)
{
	char c;

	if (argc != 1 || strcmp(argv[0], NAME) != 0)
		return;
	while (read(0, &c, 1) < 0 && errno == EINTR)
		;
	_exit(0);
}
