package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// commonFlags are the settings that most people want, in the order in which help shows them.
var commonFlags = []string{"config", "ephemeral", "node-name", "node-ip", "data-dir", "write-kubeconfig", "api-bind-address", "tls-san", "manifests", "max-pods",
	"cdi-spec-dirs", "log-level"}

// The groups of help, in their order. What no other group takes is in the last one.
const (
	groupCommon    = "Common flags"
	groupAPI       = "API server and controllers"
	groupAgent     = "Agent"
	groupResources = "Resources of the node"
	groupImages    = "Images and registries"
	groupRuntime   = "Container runtime"
	groupNetwork   = "Network, services and DNS"
	groupDevices   = "Devices"
	groupFlags     = "Other flags"
)

var helpGroups = []string{groupCommon, groupAPI, groupAgent, groupResources, groupImages, groupRuntime, groupNetwork, groupDevices, groupFlags}

// groupPrefixes are for settings that are not of the group of their role. The first that fits counts.
var groupPrefixes = []struct{ prefix, group string }{
	{"image-", groupImages}, {"registry-", groupImages},
	{"system-reserved", groupResources}, {"kube-reserved", groupResources}, {"enforce-", groupResources}, {"swap-", groupResources}, {"memory-", groupResources}, {"single-process-", groupResources},
	{"cluster-d", groupNetwork}, {"dns-", groupNetwork}, {"network-", groupNetwork}, {"cni-", groupNetwork}, {"bridge", groupNetwork}, {"pod-cidr", groupNetwork}, {"source-guard", groupNetwork},
	{"forward-guard", groupNetwork}, {"foreign-rules", groupNetwork}, {"service-proxy", groupNetwork}, {"service-cidr", groupNetwork}, {"load-balancer-", groupNetwork}, {"external-ip", groupNetwork},
	{"cdi-", groupDevices}, {"device-", groupDevices}, {"topology-", groupDevices}, {"pod-resources-", groupDevices}, {"log-", groupRuntime},
}

// groupOf says where help shows a flag. settings without a group of their own are with their role.
func groupOf(flag string) string {
	if slices.Contains(commonFlags, flag) {
		return groupCommon
	}
	i := slices.IndexFunc(settings, func(s setting) bool { return s.flag == flag })
	if i < 0 || settings[i].roles == roleAny {
		return groupFlags
	}
	for _, p := range groupPrefixes {
		if strings.HasPrefix(flag, p.prefix) {
			return p.group
		}
	}
	switch roles := settings[i].roles; {
	case roles&roleAPIServer != 0:
		return groupAPI
	case roles&roleAgent != 0:
		return groupAgent
	case roles&roleDevices != 0:
		return groupDevices
	case roles&roleDNS != 0:
		return groupNetwork
	default:
		return groupRuntime
	}
}

// groupHelp has a command with many settings show them in groups, the common ones first.
func groupHelp(cmd *cobra.Command) {
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		_, err := io.WriteString(cmd.OutOrStderr(), groupedUsage(cmd, helpWidth(cmd.OutOrStdout())))
		return err
	})
}

func groupedUsage(cmd *cobra.Command, width int) string {
	groups := map[string]*pflag.FlagSet{}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		g := groupOf(f.Name)
		if groups[g] == nil {
			groups[g] = pflag.NewFlagSet(g, pflag.ContinueOnError)
			groups[g].SortFlags = g != groupCommon
		}
		groups[g].AddFlag(f)
	})
	groups[groupCommon] = inOrder(groups[groupCommon], commonFlags)
	var b strings.Builder
	fmt.Fprintf(&b, "Usage:\n  %s\n", cmd.UseLine())
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	for _, title := range helpGroups {
		if set := groups[title]; set != nil && set.HasAvailableFlags() {
			fmt.Fprintf(&b, "\n%s:\n%s", title, set.FlagUsagesWrapped(width))
		}
	}
	return b.String()
}

func inOrder(set *pflag.FlagSet, names []string) *pflag.FlagSet {
	if set == nil {
		return nil
	}
	sorted := pflag.NewFlagSet("", pflag.ContinueOnError)
	sorted.SortFlags = false
	for _, name := range names {
		if f := set.Lookup(name); f != nil {
			sorted.AddFlag(f)
		}
	}
	return sorted
}

// The width of help: a terminal's, within what can be read; where there is none, that of a wide one.
const (
	narrowHelp  = 80
	defaultHelp = 120
	wideHelp    = 160
)

func helpWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return defaultHelp
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return defaultHelp
	}
	return min(max(int(size.Col), narrowHelp), wideHelp)
}
