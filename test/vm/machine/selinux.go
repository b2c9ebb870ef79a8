package machine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// SELinuxArgs are the parameters of a kernel that has SELinux, and no other security module of its kind.
var SELinuxArgs = []string{"security=selinux", "selinux=1"}

// policyFile is where the policy is in the machine.
const policyFile = "/etc/selinux-policy"

// selinuxPackages have the compiler of policies, and the library that it needs.
var selinuxPackages = []string{"secilc", "libsepol2"}

// SELinux compiles a policy (in CIL, with the lines that a program writes better: CATEGORIES stands for the categories c0 to c1023, FILESIDS for
// the labels of the initial SIDs that have none yet) into dir. It returns what to put into the machine, for Config.Files, and the
// shell commands that load the policy there and enforce it.
func SELinux(ctx context.Context, cache, source, dir string) (files map[string]string, commands string, err error) {
	tools, err := Unpacked(ctx, cache, "selinux", selinuxPackages...)
	if err != nil {
		return nil, "", err
	}
	raw, err := os.ReadFile(source)
	if err != nil {
		return nil, "", err
	}
	full, compiled := filepath.Join(dir, "policy.cil"), filepath.Join(dir, "policy")
	if err := os.WriteFile(full, []byte(expand(string(raw))), 0o644); err != nil {
		return nil, "", err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(tools, "usr/bin/secilc"), "-o", compiled, "-f", os.DevNull, full)
	cmd.Env = []string{"LD_LIBRARY_PATH=" + filepath.Join(tools, "usr", libraryDir) + ":" + filepath.Join(tools, libraryDir)}
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, "", fmt.Errorf("compile %s: %w\n%s", source, err, out)
	}
	// The kernel takes a policy in one write.
	return map[string]string{policyFile: compiled},
		"mount -t selinuxfs none /sys/fs/selinux && dd if=" + policyFile + " of=/sys/fs/selinux/load bs=16M 2>/dev/null && echo 1 > /sys/fs/selinux/enforce", nil
}

// expand writes what CIL has no loop for.
func expand(source string) string {
	var declared, order, sids strings.Builder
	for i := range 1024 {
		fmt.Fprintf(&declared, "(category c%d)", i)
		fmt.Fprintf(&order, " c%d", i)
	}
	for _, part := range strings.Split(source, "(sid ")[1:] {
		name, _, _ := strings.Cut(part, ")")
		if !strings.Contains(source, "(sidcontext "+name+" ") {
			fmt.Fprintf(&sids, "(sidcontext %s (system_u object_r host_file_t low))\n", name)
		}
	}
	return strings.NewReplacer("\nCATEGORIES\n", "\n"+declared.String()+"\n(categoryorder ("+order.String()+"))\n", "\nFILESIDS\n", "\n"+sids.String()).Replace(source)
}
