// Package devicetest gives a test of a device plugin (the kubelet's device plugin API, v1beta1) a node: a registration endpoint in this process,
// in a folder of its own, with the code that Monopod's node has.
//
//	func TestMyPlugin(t *testing.T) {
//		n := devicetest.Start(t, devicetest.Config{})
//		go myplugin.Run(t.Context(), n.Dir()) // registers at n.Dir()/kubelet.sock
//		n.WaitForHealthy(t.Context(), "example.com/gpu", 2)
//		answer, err := n.Allocate(t.Context(), "example.com/gpu", []string{"gpu-0"})
//		...
//		n.Restart() // a kubelet restart
//		n.WaitForHealthy(t.Context(), "example.com/gpu", 2)
//	}
//
// It needs neither root nor Kubernetes. What the whole contract of the API is, and a program that tries a plugin against it, is in
// docs/PLUGIN-AUTHORS.md.
package devicetest
