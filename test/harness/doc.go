// Package harness is what every test that starts Monopod, or a part of it, uses: a node in directories, cgroups and
// names of its own, the real kubectl, and the check that nothing is left on the host afterwards.
package harness
