"""An S3 store on the loopback that verifies signatures: moto, which calculates them by AWS's own botocore.

    s3_server.py FOLDER

Stores the folder's files in the bucket "bucket", prints {"port", "access_key", "secret_key"}, and serves until its input
ends. Needs moto[server,s3].
"""

import json
import os
import pathlib
import sys

os.environ.update(AWS_ACCESS_KEY_ID="setup", AWS_SECRET_ACCESS_KEY="setup", AWS_DEFAULT_REGION="us-east-1")

import boto3  # noqa: E402
from moto import settings  # noqa: E402
from moto.server import ThreadedMotoServer  # noqa: E402


def main():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    iam = boto3.client("iam", endpoint_url=endpoint)
    iam.create_user(UserName="reader")
    key = iam.create_access_key(UserName="reader")["AccessKey"]
    iam.put_user_policy(UserName="reader", PolicyName="all", PolicyDocument=json.dumps(
        {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}))
    s3 = boto3.client("s3", endpoint_url=endpoint)
    s3.create_bucket(Bucket="bucket")
    for file in pathlib.Path(sys.argv[1]).iterdir():
        s3.put_object(Bucket="bucket", Key=file.name, Body=file.read_bytes())
    settings.INITIAL_NO_AUTH_ACTION_COUNT = 0  # from here on every request is verified
    print(json.dumps({"port": port, "access_key": key["AccessKeyId"], "secret_key": key["SecretAccessKey"]}), flush=True)
    sys.stdin.read()


main()
