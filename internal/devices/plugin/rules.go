package plugin

import v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

// What follows is how the node judges what plugins send, for those who test plugins: they say what the node would.

// CheckVersion says why none of the versions of the API that a plugin speaks is spoken here.
func CheckVersion(versions ...string) error { return checkVersions(versions...) }

// CheckResource says why a name cannot be that of a plugin's resource.
func CheckResource(name string) error { return checkResource(name) }

// CheckEndpoint says why what a plugin registers cannot be the name of its socket in dir.
func CheckEndpoint(dir, endpoint string) error { return checkEndpoint(dir, endpoint) }

// CheckAnswer says why the answer to an Allocate for one container cannot be used.
func CheckAnswer(resp *v1beta1.AllocateResponse) error {
	_, err := answerOf(resp)
	return err
}

// CheckPreference says why a preference for n of the available devices, all of must among them, is ignored; empty: it is followed.
func CheckPreference(resp *v1beta1.PreferredAllocationResponse, available, must []string, n int) string {
	_, why := preference(resp, available, must, n)
	return why
}

// Words are a plugin's error without gRPC's frame, on not more than 1,000 bytes.
func Words(err error) string { return plain(err).Error() }
