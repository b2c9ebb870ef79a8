// Package e2e tests the whole node from outside: the built binaries, the real kubectl, real containers.
package e2e
