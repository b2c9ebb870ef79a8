package machine

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A ramdisk must be what cpio reads: busybox's cpio stands in for the kernel.
func TestRamdiskIsACpioArchive(t *testing.T) {
	dir := t.TempDir()
	init, module := filepath.Join(dir, "init"), filepath.Join(dir, "a-b.ko")
	for path, content := range map[string]string{init: "#!x\n", module: strings.Repeat("m", 4097)} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	archive := filepath.Join(dir, "ramdisk")
	if err := writeRamdisk(archive, init, []string{module}); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	entries := parseNewc(t, raw)
	want := []string{"dev 40755 ", "proc 40755 ", "sys 40755 ", "newroot 40755 ", "modules 40755 ", "init 100755 #!x\n",
		"modules/a-b.ko 100644 " + strings.Repeat("m", 4097), "modules/list 100644 /modules/a-b.ko\n"}
	if !slices.Equal(entries, want) {
		t.Errorf("got  %.60q\nwant %.60q", entries, want)
	}
	if err := writeRamdisk(archive, filepath.Join(dir, "none"), nil); err == nil {
		t.Error("a ramdisk without init")
	}
}

// parseNewc reads an archive as the kernel's document describes it: "name mode content" for each entry.
func parseNewc(t *testing.T, raw []byte) (entries []string) {
	t.Helper()
	aligned := func(n int) int { return (n + 3) &^ 3 }
	for at := 0; ; {
		var f [14]int
		header := raw[at : at+110]
		if string(header[:6]) != "070701" {
			t.Fatalf("no entry at %d", at)
		}
		for i := range 13 {
			if _, err := fmt.Sscanf(string(header[6+8*i:14+8*i]), "%X", &f[i]); err != nil {
				t.Fatal(err)
			}
		}
		mode, size, nameSize := f[1], f[6], f[11]
		name := string(raw[at+110 : at+110+nameSize-1])
		at = aligned(at + 110 + nameSize)
		if name == "TRAILER!!!" {
			return entries
		}
		entries = append(entries, fmt.Sprintf("%s %o %s", name, mode, raw[at:at+size]))
		at = aligned(at + size)
	}
}

// fakeModule makes an ELF object with a .modinfo section, with the assembler's help as the kernel's build does.
func fakeModule(t *testing.T, path, depends string) {
	t.Helper()
	src := path + ".s"
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	code := fmt.Sprintf(".section .modinfo,\"a\"\n.asciz \"license=GPL\"\n.asciz \"depends=%s\"\n", depends)
	if err := os.WriteFile(src, []byte(code), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("as", "-o", path, src).CombinedOutput(); err != nil {
		t.Fatalf("as (package binutils): %v: %s", err, out)
	}
}

func TestModulesComeAfterWhatTheyDependOn(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "modules.builtin"), []byte("kernel/fs/ext4/ext4.ko\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	fakeModule(t, filepath.Join(dir, "kernel/a/top.ko"), "mid-dle,ext4")
	fakeModule(t, filepath.Join(dir, "kernel/b/mid-dle.ko"), "base")
	fakeModule(t, filepath.Join(dir, "kernel/c/base.ko"), "")
	fakeModule(t, filepath.Join(dir, "kernel/c/broken.ko"), "nowhere")
	m, err := openModules(dir)
	if err != nil {
		t.Fatal(err)
	}
	files, err := m.resolve("top", "base", "mid_dle")
	var names []string
	for _, f := range files {
		names = append(names, filepath.Base(f))
	}
	if want := []string{"base.ko", "mid-dle.ko", "top.ko"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("got %q, %v; want %q", names, err, want)
	}
	if _, err := m.resolve("broken"); err == nil || !strings.Contains(err.Error(), "no module nowhere (needed by broken)") {
		t.Errorf("got %v", err)
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	var copied bytes.Buffer
	tl := &tail{copy: &copied}
	for i := range 100_000 {
		fmt.Fprintf(tl, "line %d\r\n", i)
	}
	if got := tl.last(2); got != "line 99998\nline 99999" {
		t.Errorf("got %q", got)
	}
	if len(tl.buf) > 256<<10 {
		t.Errorf("keeps %d bytes", len(tl.buf))
	}
	if copied.Len() < 1_000_000 {
		t.Errorf("copied only %d bytes", copied.Len())
	}
}

func TestCopyTree(t *testing.T) {
	dir := t.TempDir()
	from := filepath.Join(dir, "from")
	if err := os.MkdirAll(filepath.Join(from, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(from, "sub/tool"), []byte("x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("sub/tool", filepath.Join(from, "link")); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(dir, "to/deep")
	if err := copyTree(from, to); err != nil {
		t.Fatal(err)
	}
	if link, err := os.Readlink(filepath.Join(to, "link")); err != nil || link != "sub/tool" {
		t.Errorf("link: %q, %v", link, err)
	}
	if info, err := os.Stat(filepath.Join(to, "sub/tool")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("file: %v, %v", info, err)
	}
	// A file that is named by a link is copied, not the link.
	if err := copyTree(filepath.Join(from, "link"), filepath.Join(dir, "file")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(filepath.Join(dir, "file")); err != nil || !info.Mode().IsRegular() {
		t.Errorf("by a link: %v, %v", info, err)
	}
	if err := copyTree(filepath.Join(dir, "none"), to); err == nil {
		t.Error("nothing was copied without an error")
	}
}
