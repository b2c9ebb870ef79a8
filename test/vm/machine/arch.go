package machine

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// NativeArch is the architecture of machines unless another one is asked for. All names of architectures are Debian's, which are Go's as well.
const NativeArch = "amd64"

// arch is what differs between the machines of two architectures. All of them are emulated.
type arch struct {
	// qemu is the emulator, of the Debian package qemuPackage.
	qemu, qemuPackage string
	// metaPackage depends on the newest kernel for clouds, kernelPackage is the name of such a kernel.
	metaPackage   string
	kernelPackage *regexp.Regexp
	// arguments choose machine and processor, kernelArgs its console.
	arguments  []string
	kernelArgs string
}

var archs = map[string]arch{
	NativeArch: {
		qemu: "qemu-system-x86_64", qemuPackage: "qemu-system-x86",
		metaPackage: "linux-image-cloud-amd64", kernelPackage: regexp.MustCompile(`linux-image-([0-9][^ ]*-cloud-amd64)`),
		arguments: []string{
			// One thread emulates all processors in turn. With a thread each they may lock up for good while the kernel patches its own code, as it does when the
			// first program is attached to a cgroup; and with two machines beside each other on two processors one is faster and takes two thirds of the time of them.
			"-machine", "pc,hpet=off,vmport=off", "-accel", "tcg,thread=single,tb-size=512",
			// Five-level page tables, which "max" has, only make the emulated walk longer. What guards the kernel against programs (SMAP, protection keys) ends the
			// emulator's blocks of code at each system call. With ERMS and FSRM the kernel copies and clears memory byte by byte, which is quick on a processor only.
			"-cpu", "max,la57=off,smap=off,umip=off,pku=off,erms=off,fsrm=off",
		},
		// A machine once said nothing for two minutes: earlyprintk would tell how far its kernel came.
		// The second line turns off what Debian's kernel does against attacks on itself: with the above, to boot, to start programs and to copy takes a fifth less.
		kernelArgs: "console=ttyS0 earlyprintk=serial,ttyS0 tsc=reliable no_timer_check" +
			" init_on_alloc=0 hardened_usercopy=off randomize_kstack_offset=off nokaslr",
	},
	"arm64": {
		qemu: "qemu-system-aarch64", qemuPackage: "qemu-system-arm",
		metaPackage: "linux-image-cloud-arm64", kernelPackage: regexp.MustCompile(`linux-image-([0-9][^ ]*-cloud-arm64)`),
		// Pointers' authentication as the architecture defines it takes half of the emulator's time; the other algorithm is as good here.
		arguments:  []string{"-machine", "virt", "-accel", "tcg,thread=single,tb-size=512", "-cpu", "max,pauth-impdef=on"},
		kernelArgs: "console=ttyAMA0 earlycon",
	},
}

// archOf returns what is known of an architecture; no name is NativeArch.
func archOf(name string) (arch, error) {
	if name == "" {
		name = NativeArch
	}
	a, ok := archs[name]
	if !ok {
		return arch{}, fmt.Errorf("there is no machine of the architecture %q: want %s", name, strings.Join(slices.Sorted(maps.Keys(archs)), " or "))
	}
	return a, nil
}
