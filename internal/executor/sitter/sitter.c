//go:build cgo

// The process that watches a command of an OCI runtime. See sitter.go. It branches off before Go's runtime starts.

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME "monopod:sitter" // argv[0]; argv[1] is the pid file or empty, argv[2..] the command
#define CHANNEL 3             // what the worker hears; its end is the worker's
#define LOCK 4                // held open as long as anything runs

// message is what the worker hears: 'P' and the pid that is in the pid file; 'X' and an exit code, the last one. The process of the
// pid file is reaped when the worker has answered that: until then its session's number is nobody else's.
struct message {
	int32_t kind;
	int32_t value;
};

static void say(int32_t kind, int32_t value)
{
	struct message m = { kind, value };
	while (write(CHANNEL, &m, sizeof(m)) < 0 && errno == EINTR)
		;
}

static int code_of(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int read_number(const char *path)
{
	char buf[32];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return 0;
	n = read(fd, buf, sizeof(buf) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	buf[n] = 0;
	return atoi(buf);
}

// kill_children kills all children, of which none has been reaped: their pids are their own.
static void kill_children(void)
{
	char buf[4096];
	char *p, *end;
	int fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return;
	n = read(fd, buf, sizeof(buf) - 1);
	close(fd);
	if (n <= 0)
		return;
	buf[n] = 0;
	for (p = buf; *p; p = end) {
		long pid = strtol(p, &end, 10);
		if (end == p)
			break;
		if (pid > 0)
			kill(pid, SIGKILL);
	}
}

// kill_session kills what is in the session of a leader that is not reaped, but for the leader; it says whether there was anything.
static int kill_session(pid_t leader)
{
	DIR *proc = opendir("/proc");
	struct dirent *e;
	int found = 0;

	if (!proc)
		return 0;
	while ((e = readdir(proc))) {
		struct pollfd ended = { .events = POLLIN };
		pid_t pid = atoi(e->d_name);

		if (pid <= 0 || pid == leader || getsid(pid) != leader)
			continue;
		ended.fd = syscall(SYS_pidfd_open, pid, 0);
		if (ended.fd < 0)
			continue;
		// The descriptor may be that of a later process with this pid: so it is looked at once more. One that has ended and that
		// nobody reaps counts for nothing.
		if (getsid(pid) == leader && poll(&ended, 1, 0) == 0) {
			found = 1;
			syscall(SYS_pidfd_send_signal, ended.fd, SIGKILL, NULL, 0);
		}
		close(ended.fd);
	}
	closedir(proc);
	return found;
}

// ROUNDS bounds how often what is left of a session is killed, one every 100 ms: a process may hang in the kernel.
#define ROUNDS 100

// command_ended tells the worker how the command ended, and returns the pid that it has written.
static pid_t command_ended(const char *pid_file, int status)
{
	pid_t target;

	if (code_of(status) != 0 || !*pid_file) {
		say('X', code_of(status));
		_exit(0);
	}
	target = read_number(pid_file);
	say('P', target);
	return target;
}

static void watch(const char *pid_file, pid_t command, int signals)
{
	pid_t target = 0; // what the command has left
	int running = 1, told = 0, abandoned = 0, rounds = 0;

	for (;;) {
		struct pollfd fds[] = { { .fd = signals, .events = POLLIN }, { .fd = abandoned ? -1 : CHANNEL, .events = POLLIN } };
		struct signalfd_siginfo info;
		siginfo_t child;
		int status;
		char byte;

		poll(fds, 2, abandoned ? 100 : -1);
		if (fds[0].revents && read(signals, &info, sizeof(info)) < 0 && errno != EAGAIN && errno != EINTR)
			_exit(1);
		// What has ended is looked at before it is reaped. Until the command has, nobody knows which one its pid file names.
		if (running && waitpid(command, &status, WNOHANG) == command) {
			running = 0;
			target = abandoned ? read_number(pid_file) : command_ended(pid_file, status);
		}
		while (!running) {
			child.si_pid = 0;
			if (waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD)
				_exit(1); // nothing is left, and it was not what was looked for
			if (child.si_pid == 0)
				break;
			if (child.si_pid != target) {
				waitpid(child.si_pid, &status, WNOHANG);
				continue;
			}
			if (!told && !abandoned)
				say('X', child.si_code == CLD_EXITED ? child.si_status : 128 + child.si_status);
			told = 1;
			break; // it stays until the worker has answered
		}
		if (fds[1].revents) {
			if (told && read(CHANNEL, &byte, 1) == 1) {
				waitpid(target, &status, WNOHANG);
				_exit(0);
			}
			abandoned = 1; // the worker says nothing: it is gone, or has closed its end
		}
		if (abandoned) {
			// What is not a child of this process may be a stranger.
			if (target && waitid(P_PID, target, &child, WEXITED | WNOHANG | WNOWAIT) < 0)
				target = 0;
			if (!target) {
				kill_children();
				continue;
			}
			kill(target, SIGKILL);
			if (told && (!kill_session(target) || ++rounds > ROUNDS)) {
				waitpid(target, &status, WNOHANG);
				_exit(1); // a daemon that it has left goes on
			}
		}
	}
}

__attribute__((constructor)) static void take_over(int argc, char **argv)
{
	sigset_t chld, old;
	int signals;
	pid_t command;

	if (argc < 3 || strcmp(argv[0], NAME) != 0)
		return;
	prctl(PR_SET_NAME, "oci-sitter", 0, 0, 0);
	fcntl(CHANNEL, F_SETFD, FD_CLOEXEC);
	fcntl(LOCK, F_SETFD, FD_CLOEXEC);
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, &old);
	signals = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signals < 0)
		_exit(1);
	if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
		_exit(1);
	command = fork();
	if (command < 0)
		_exit(1);
	if (command == 0) {
		sigprocmask(SIG_SETMASK, &old, NULL);
		execv(argv[2], argv + 2);
		_exit(127);
	}
	if (*argv[1]) { // the process that is born keeps them open; this one must not
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);
		if (null >= 0) {
			dup2(null, 0);
			dup2(null, 1);
			dup2(null, 2);
		}
	}
	watch(argv[1], command, signals);
	_exit(1);
}
