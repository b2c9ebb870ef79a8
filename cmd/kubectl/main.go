// Command kubectl is k8s.io/kubectl's command, so that a machine that has Monopod needs no other download to use it.
package main

import (
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"

	// Credential plugins that kubeconfigs of other clusters name.
	_ "k8s.io/client-go/plugin/pkg/client/auth"
)

func main() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		// It prints the error as kubectl does and ends the process with kubectl's exit code.
		util.CheckErr(err)
	}
}
