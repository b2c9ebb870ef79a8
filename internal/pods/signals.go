package pods

import (
	"slices"
	"strconv"
)

// Signals are the names of the signals of Linux as the API has them (core/v1 Signal), which lifecycle.stopSignal takes.
func Signals() []string {
	all := []string{
		"SIGABRT", "SIGALRM", "SIGBUS", "SIGCHLD", "SIGCLD", "SIGCONT", "SIGFPE", "SIGHUP", "SIGILL", "SIGINT", "SIGIO", "SIGIOT", "SIGKILL", "SIGPIPE",
		"SIGPOLL", "SIGPROF", "SIGPWR", "SIGQUIT", "SIGSEGV", "SIGSTKFLT", "SIGSTOP", "SIGSYS", "SIGTERM", "SIGTRAP", "SIGTSTP", "SIGTTIN", "SIGTTOU",
		"SIGURG", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGWINCH", "SIGXCPU", "SIGXFSZ", "SIGRTMIN", "SIGRTMAX",
	}
	for i := range 15 {
		all = append(all, "SIGRTMIN+"+strconv.Itoa(i+1))
	}
	for i := range 14 {
		all = append(all, "SIGRTMAX-"+strconv.Itoa(i+1))
	}
	return all
}

// IsSignal says whether a name is one of a signal of Linux.
func IsSignal(name string) bool { return slices.Contains(Signals(), name) }
