@sealed class A { @log run() {} }
