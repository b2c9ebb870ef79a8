// Package reboot is run in the test machine, which it restarts as a power cut does: what a node remembers of its devices over that. See TestDevicesOverAReboot in test/vm.
package reboot
